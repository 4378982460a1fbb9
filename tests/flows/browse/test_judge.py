"""Pairs to judge are drawn at random from a recorded frame; judgements are logged at once, and registered by a run."""

import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.judge.judged_samples import images_of, judged_samples
from pairmill.catalog.write import lease
from pairmill.catalog.write.judgement_log import register_judgements
from pairmill.flows.browse.judge_routes import user_name
from pairmill.flows.run.run_start import session_on
from pairmill.flows.run.settings import Compute
from tests.worlds.browsed import ORIGIN, Pages, browsed, rows, text
from tests.worlds.published import IMAGE_RULES, plan_of

FRAME = "dataset = 'small' AND version = 1 AND dropped_by IN ('', 'short_side')"


@pytest.fixture
def judged(small: Path, tmp_path: Path) -> Iterator[tuple[Pages, Path]]:
    lake = Path(shutil.copytree(small, tmp_path / "lake"))
    with browsed(lake) as pages:
        pages.gallery("/gallery?dataset=small@1")
        yield pages, lake


def send(pages: Pages, path: str, **fields: object) -> httpx.Response:
    return pages.client.post(path, data=fields, headers={"Origin": ORIGIN})


def drawn(pages: Pages, threshold: float = 60) -> str:
    """Draw a sample; return the path of its page."""
    answer = send(pages, "/judge", dataset="small@1", rule="short_side", threshold=threshold)
    assert answer.status_code == 200, answer.text
    return answer.url.path


def logged(lake: Path) -> list[dict]:
    files = sorted((lake / "judgements").glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


@pytest.mark.slow
def test_a_sample_is_the_frame_in_the_order_of_a_seeded_hash_and_its_frame_is_recorded(judged: tuple[Pages, Path]):
    pages, lake = judged
    drawn(pages)
    (sample,) = logged(lake)
    above = "SELECT item_id FROM decisions JOIN images ON image_id = item_id WHERE least(width, height) >= 60"
    frame = [row[0] for row in rows(lake, f"{above} AND {FRAME}")]
    assert (sample["population"], sample["rule"], sample["threshold"]) == (len(frame), "short_side", 60.0)
    assert rows(lake, "SELECT content_digest FROM datasets") == [(sample["content_digest"],)]
    expected = sorted(frame, key=lambda each: hashlib.sha256((each + sample["seed"]).encode()).hexdigest())
    gallery = pages.opened.gallery("small@1")
    assert gallery
    (found,) = pages.opened.lake.judged_samples()
    assert [row["image_id"] for row in images_of(gallery, found.sample)] == expected and len(expected) > 5


@pytest.mark.slow
def test_every_pair_of_a_frame_is_equally_likely_to_be_drawn_first(judged: tuple[Pages, Path]):
    pages, _ = judged
    drawn(pages)
    gallery = pages.opened.gallery("small@1")
    assert gallery
    sample = pages.opened.lake.judged_samples()[0].sample
    first: dict[str, int] = {}
    for n in range(600):
        seeded = sample.model_copy(update={"seed": hashlib.sha256(b"%d" % n).hexdigest()[:32]})
        image = images_of(gallery, seeded, most=1)[0]["image_id"]
        first[image] = first.get(image, 0) + 1
    expected = 600 / sample.population
    chi = sum((n - expected) ** 2 / expected for n in first.values())
    assert len(first) == sample.population and chi < 3 * sample.population  # 20 to 30 degrees of freedom: p < 1e-6


def galleries(lake: Path) -> dict[Path, int]:
    """Return the inode of each gallery file."""
    return {file: file.stat().st_ino for file in lake.rglob("gallery-*.duckdb")}


@pytest.mark.slow
def test_verdicts_are_written_at_once_shown_and_taken_back(judged: tuple[Pages, Path]):
    pages, lake = judged
    built = galleries(lake)
    path = drawn(pages)
    for position, verdict in enumerate(("match", "mismatch", "unsure", "match")):
        page = pages.page(path)
        assert page.xpath("string(//form[@class='verdicts']/input/@value)") == str(position)
        assert send(pages, path, position=position, verdict=verdict).status_code == 200
        assert [line["verdict"] for line in logged(lake)[1:]][-1] == verdict
    assert "match 2 mismatch 1 unsure 1" in text(pages.page(path).find_class("judged")[0])
    send(pages, path, position=3, verdict="undone")
    page = pages.page(path)
    assert "match 1 mismatch 1 unsure 1" in text(page.find_class("judged")[0])
    assert page.xpath("string(//form[@class='verdicts']/input/@value)") == "3"
    assert [line["verdict"] for line in logged(lake)[1:]] == ["match", "mismatch", "unsure", "match", "undone"]
    assert galleries(lake) == built != {}, "a gallery that is open was built again"
    with browsed(lake) as others:  # another reader, at the same moment
        assert "1 match, 1 mismatch, 1 unsure" in text(others.gallery("/judge?dataset=small@1"))


@pytest.mark.slow
def test_the_text_to_judge_is_the_one_that_the_rule_compares(judged: tuple[Pages, Path]):
    pages, lake = judged
    path = drawn(pages)
    send(pages, path, position=0, verdict="match")
    _, line = logged(lake)
    best = (
        "SELECT text FROM match_candidates JOIN sentence_content USING (content) JOIN images USING (sha256) "
        f"WHERE image_id = '{line['image_id']}' ORDER BY similarity DESC LIMIT 1"
    )
    assert rows(lake, best) == [(line["text"],)]
    assert rows(lake, f"SELECT least(width, height) FROM images WHERE image_id = '{line['image_id']}'") == [
        (line["value"],)
    ]


@pytest.mark.slow
def test_judgements_are_written_while_a_run_holds_the_lease_and_registered_once_by_the_next(
    judged: tuple[Pages, Path],
):
    pages, lake = judged
    path = drawn(pages)
    with create_or_open(lake) as opened:
        with lease.writing(opened, "long", "curate small"):
            send(pages, path, position=0, verdict="mismatch")
            assert "mismatch 1" in text(pages.page(path))
        before = judged_samples(opened)
        with session_on(opened, plan_of(3, IMAGE_RULES, True, True), Compute(), "maintain"):
            pass
        with lease.writing(opened, "later", "curate small") as writer:
            assert register_judgements(writer.lake) == 0
        counted = "SELECT verdict, count(*) FROM judgements JOIN judgement_samples USING (sample_id) GROUP BY 1"
        assert opened.query(counted) == [("mismatch", 1)]
        assert judged_samples(opened) == before
        shutil.rmtree(lake / "judgements")
        assert judged_samples(opened) == before  # from the tables alone


@pytest.mark.slow
def test_a_line_that_is_torn_or_not_valid_does_not_count_and_stops_no_run(judged: tuple[Pages, Path]):
    pages, lake = judged
    path = drawn(pages)
    send(pages, path, position=0, verdict="match")
    file = next((lake / "judgements").glob("*.jsonl"))
    with file.open("a") as opened:
        opened.write('{"line": "judgement", "verdict": "match"}\n{"line": "judgement", "verd')
    with create_or_open(lake) as opened, lease.writing(opened, "run", "test") as writer:
        assert register_judgements(writer.lake) == 2
    page = pages.gallery("/judge?dataset=small@1")
    assert f"{file}, line 3" in text(page.find_class("fault")[0]) and len(page.find_class("fault")) == 1


@pytest.mark.slow
def test_a_sample_that_cannot_be_drawn_is_refused_in_one_line(judged: tuple[Pages, Path]):
    pages, lake = judged
    asked = {"dataset": "small@1", "rule": "short_side", "threshold": 1}
    for wrong in ({"rule": "nosuch"}, {"threshold": "x"}, {"threshold": 1e9}, {"dataset": ""}):
        answer = send(pages, "/judge", **asked | wrong)
        assert answer.status_code == 400 and len(answer.text) > 100, wrong
    assert not (lake / "judgements").exists()


@pytest.mark.slow
def test_a_pair_outside_the_sample_and_a_verdict_of_another_site_are_refused(judged: tuple[Pages, Path]):
    pages, lake = judged
    path = drawn(pages)
    assert send(pages, path, position=1_999, verdict="match").status_code == 400
    assert send(pages, path, position=0, verdict="undone").status_code == 400
    assert send(pages, path, position=0, verdict="maybe").status_code == 400
    assert send(pages, "/judge/" + "0" * 32, position=0, verdict="match").status_code == 404
    refused = pages.client.post(
        path, data={"position": 0, "verdict": "match"}, headers={"Origin": "https://evil.example"}
    )
    assert refused.status_code == 403 and len(logged(lake)) == 1


@pytest.mark.slow
def test_a_sample_of_a_version_that_has_changed_is_not_judged_on(judged: tuple[Pages, Path]):
    pages, lake = judged
    path = drawn(pages)
    with create_or_open(lake) as opened:
        opened.execute("UPDATE datasets SET content_digest = 'other'")
        assert datasets.find(opened, "small").content_digest == "other"
    assert "has changed since this sample was drawn" in text(pages.page(path, 400))


def test_a_user_without_a_name_judges_by_number(monkeypatch: pytest.MonkeyPatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", lambda _: (_ for _ in ()).throw(KeyError("no such user")))
    assert user_name() == f"user {os.getuid()}"
