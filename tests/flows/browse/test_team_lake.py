"""A lake with its data on S3, or its metadata in Postgres, is browsed and judged as one on this machine is."""

import io
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from PIL import Image

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.judge.judged_samples import judged_samples
from pairmill.catalog.write import lease
from pairmill.catalog.write.judgement_log import register_judgements
from tests.worlds.browsed import ORIGIN, browsed, ids, rows, text
from tests.worlds.data_bucket import bucket as bucket
from tests.worlds.elsewhere import postgres as postgres
from tests.worlds.elsewhere import write_yaml
from tests.worlds.published import published


@pytest.fixture
def team(bucket, tmp_path: Path) -> Path:
    folder = tmp_path / "lake"
    folder.mkdir()
    (folder / "lake.yaml").write_text("data_path: s3://data/team\n")
    published(folder, pictures=12)
    return folder


@pytest.mark.slow
def test_pictures_on_s3_are_shown_judged_and_registered(team: Path, bucket):
    with browsed(team) as pages:
        kept = rows(team, "SELECT image_id, sha256 FROM pairs ORDER BY 1")
        assert ids(pages.gallery("/gallery?dataset=small@1&fate=kept")) == [row[0] for row in kept]
        with Image.open(io.BytesIO(pages.client.get(f"/picture/small/{kept[0][1]}").content)) as made:
            assert made.format == "JPEG"
        assert "short_side" in text(pages.page(f"/item/{kept[0][0]}?dataset=small@1"))
        form = {"dataset": "small@1", "rule": "short_side", "threshold": 50}
        path = pages.client.post("/judge", data=form, headers={"Origin": ORIGIN}).url.path
        for position in (0, 1):
            given = {"position": position, "verdict": "match"}
            assert pages.client.post(path, data=given, headers={"Origin": ORIGIN}).status_code == 200
        assert "match 2" in text(pages.page(path).find_class("judged")[0])
        act = {"dataset": "small@1", "act": "leave_out", "picture": kept[0][1]}
        with create_or_open(team) as lake, lease.writing(lake, "run-2", "curate small"):
            assert "waiting" in pages.client.post("/acts", data=act, headers={"Origin": ORIGIN}).text
            assert rows(team, "SELECT * FROM acts") == []
        act["picture"] = kept[1][1]
        assert "waiting" not in pages.client.post("/acts", data=act, headers={"Origin": ORIGIN}).text
        assert rows(team, 'SELECT sha256 FROM acts ORDER BY "commit"') == [(row[1],) for row in kept[:2]]
        logged = [item["Key"] for item in bucket.list_objects_v2(Bucket="data", Prefix="team/judgements/")["Contents"]]
        assert len(logged) == 3  # S3 cannot append: an object for the sample and for each judgement
    with create_or_open(team) as lake:
        with lease.writing(lake, "next", "curate small") as writer:
            assert register_judgements(writer.lake) == 3
        assert judged_samples(lake)[0].verdicts == {"match": 2}


@pytest.mark.slow
def test_a_lake_with_metadata_in_postgres_is_browsed_and_judged(postgres: str, tmp_path: Path):
    folder = write_yaml(tmp_path / "lake", metadata=postgres, data_path="data")
    published(folder, pictures=12)
    with browsed(folder) as pages:
        kept = [row[0] for row in rows(folder, "SELECT image_id FROM pairs ORDER BY 1")]
        assert ids(pages.gallery("/gallery?dataset=small@1&fate=kept")) == kept
        assert "short_side" in text(pages.page(f"/item/{kept[0]}?dataset=small@1"))
        form = {"dataset": "small@1", "rule": "short_side", "threshold": 50}
        path = pages.client.post("/judge", data=form, headers={"Origin": ORIGIN}).url.path
        given = {"position": 0, "verdict": "mismatch"}
        assert pages.client.post(path, data=given, headers={"Origin": ORIGIN}).status_code == 200
    with create_or_open(folder) as lake, lease.writing(lake, "next", "curate small") as writer:
        assert register_judgements(writer.lake) == 2
        assert lake.query("SELECT verdict FROM judgements") == [("mismatch",)]


@pytest.mark.slow
def test_several_readers_see_the_same_pages_at_once(small: Path):
    with browsed(small) as first, browsed(small) as second:
        addresses = ["/gallery?dataset=small@1", "/gallery?dataset=small@1&fate=dropped&sort=width", "/compare"]
        addresses += [f"/item/{row[0]}?dataset=small@1" for row in rows(small, "SELECT image_id FROM images LIMIT 5")]
        for pages in (first, second):
            pages.gallery(addresses[0])
        expected = [first.client.get(each).text for each in addresses]
        with ThreadPoolExecutor(8) as threads:
            for pages in (first, second):
                seen = threads.map(lambda each, pages=pages: pages.client.get(each).text, addresses * 4)
                assert list(seen) == expected * 4
