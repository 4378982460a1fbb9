"""A lake that only refers to its pictures scores and captions them as one that keeps them, while they are there."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_in_wave, sorted_by_payload
from pairmill.catalog.terms.error import Damaged
from pairmill.catalog.terms.ids import content_id
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.fusion import FuseTexts
from pairmill.tasks.generate.generative_job import Queries
from pairmill.tasks.measure.score_contents import score_images
from pairmill.tasks.run.items.payloads import payloads
from pairmill.tasks.run.session import Session
from tests.worlds.noise import picture
from tests.worlds.shared import new_lake

COMPUTE = Compute.model_validate({"workers": 1})
SCORES = "SELECT sha256, sharpness, brightness, colourfulness, image_entropy FROM image_quality ORDER BY ALL"
MODEL = VisionLanguageModel("hf:infra/demo/models/captioner")
ASK = Queries(MODEL, Decode(96), 4, "Describe the picture.")
TEXTS = {
    "captions": ["a"] * 2,
    "tags": [[]] * 2,
    "sentences": ["s"] * 2,
    "input_digests": ["d"] * 2,
}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    folder.mkdir()
    for n in range(6):
        (folder / f"{n}.png").write_bytes(picture(n))
    return folder


def opened(lake: Path, photos: Path, payload: str, **settings: str):
    return session(
        load_recipe("demo", {"ingest.payload": payload, **settings}), [str(photos)], str(new_lake(lake)), COMPUTE
    )


def scored(held: Session) -> list[tuple]:
    ingest(held)
    score_images(held)
    return held.lake.query(SCORES)


def referring(folder: Path, names: list[str]) -> WorkItem:
    """A work item over a file of payloads that holds no bytes of the pictures ``names``."""
    data = [(folder / name).read_bytes() for name in names]
    rows = {
        "sha256": [content_id(each) for each in data],
        "bytes": pa.array([None] * len(data), pa.binary()),
        "uri": [str(folder / name) for name in names],
        "offset": [0] * len(data),
        "length": [len(each) for each in data],
    }
    pq.write_table(pa.table(rows), folder.parent / "payloads.parquet")
    return WorkItem("shard", tuple(rows["sha256"]), (str(folder.parent / "payloads.parquet"),))


@pytest.mark.slow
def test_pictures_that_are_referred_to_score_as_those_that_are_kept(photos: Path, tmp_path: Path):
    with opened(tmp_path / "copies", photos, "copy") as copies:
        wanted = scored(copies)
        assert copies.lake.query("SELECT count(bytes) FROM payloads") == [(6,)]
    with opened(tmp_path / "references", photos, "reference") as references:
        assert scored(references) == wanted and len(wanted) == 6
        kept = references.lake.query('SELECT count(bytes), min("offset"), list(DISTINCT length > 0) FROM payloads')
        assert kept == [(0, 0, [True])]
        digests = [held.recipe.digest() for held in (copies, references)]
        assert digests[0] == digests[1], "where bytes lie is no part of what a dataset is"


@pytest.mark.slow
def test_a_picture_gone_before_its_score_is_in_quarantine_and_scored_when_it_is_back(photos: Path, tmp_path: Path):
    gone, lake = picture(2), tmp_path / "lake"
    with opened(lake, photos, "reference") as held:
        ingest(held)
        (photos / "2.png").unlink()
        score_images(held)
        said = held.lake.query("SELECT item, stage, reason FROM quarantine")
        assert said == [(content_id(gone), "score images", "missing")]
        assert held.lake.query("SELECT count(*), count(brightness) FROM image_quality") == [(6, 5)]
    (photos / "2.png").write_bytes(gone)
    with opened(lake, photos, "reference") as held:
        assert retry_quarantined(held, "missing") == 1
        score_images(held)
        assert held.lake.query("SELECT count(*), count(brightness) FROM image_quality") == [(6, 6)]
        assert held.lake.query("SELECT count(*) FROM quarantine") == [(0,)]


@pytest.mark.slow
def test_a_moved_picture_is_found_where_it_was_seen_again_and_every_other_place_is_tried(photos: Path, tmp_path: Path):
    with opened(tmp_path / "lake", photos, "reference") as held:
        wanted = scored(held)
    (photos / "deep").mkdir()
    for n in range(3):
        (photos / f"{n}.png").rename(photos / "deep" / f"{n}.png")
    with opened(tmp_path / "lake", photos, "reference", **{"decoding.side": "64"}) as held:
        assert len(scored(held)) == 2 * len(wanted) and reasons(held) == []
        assert held.lake.query("SELECT count(brightness) FROM image_quality") == [(12,)]


@pytest.mark.slow
def test_what_another_run_copied_heals_what_was_missing_by_a_retry(photos: Path, tmp_path: Path):
    lake, other = tmp_path / "lake", tmp_path / "other"
    with opened(lake, photos, "reference") as held:
        ingest(held)
    other.mkdir()
    (photos / "3.png").rename(other / "3.png")
    with opened(lake, photos, "reference") as held:
        score_images(held)
        assert reasons(held) == [("missing", 1)]
    with opened(lake, other, "copy") as held:
        ingest(held)
        assert retry_quarantined(held, "missing") == 1
        score_images(held)
        assert reasons(held) == []


@pytest.mark.slow
def test_a_source_that_is_gone_keeps_no_other_from_its_retry(photos: Path, tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    for folder in (gone, photos):
        (folder / "junk.jpg").write_bytes(b"no picture")
    with opened(tmp_path / "lake", gone, "copy") as held:
        ingest(held)
    with opened(tmp_path / "lake", photos, "copy") as held:
        ingest(held)
        assert reasons(held) == [("not_an_image", 2)]
        shutil.rmtree(gone)
        (photos / "junk.jpg").write_bytes(picture(9))
        assert retry_quarantined(held, "not_an_image") == 1
        assert any(str(gone) in note for note in held.notes)
        assert held.lake.query("SELECT count(*) FROM images") == [(7,)]


def test_kept_and_referred_to_pictures_may_stand_side_by_side(photos: Path):
    item = referring(photos, ["0.png", "1.png", "2.png"])
    rows = pq.read_table(item.paths[0]).to_pylist()
    rows[1] |= {"bytes": picture(1), "uri": "https://host/picture.jpg"}
    pq.write_table(pa.Table.from_pylist(rows), item.paths[0])
    ((shas, datas),) = payloads(item)
    assert shas == list(item.keys) and datas == [picture(0), picture(1), picture(2)]


@pytest.mark.parametrize(
    ("job", "inputs", "text", "status"),
    [
        (CaptionPictures(ASK, "Describe the picture.", "c", name="main"), {}, "text", "status"),
        (FuseTexts(ASK, "Describe {caption}", "f"), TEXTS, "synthetic_text", "synthetic_status"),
    ],
    ids=["caption", "fuse"],
)
def test_a_picture_gone_before_its_text_has_an_empty_one_and_a_reason(
    job: CaptionPictures | FuseTexts, inputs: dict, text: str, status: str, photos: Path
):
    item = referring(photos, ["0.png", "1.png"])
    item = WorkItem(item.shard, item.keys, item.paths, inputs=inputs)
    (photos / "0.png").write_bytes(b"others")
    texts, bad = job(item)
    answers = {row["sha256"]: row for row in texts.rows.to_pylist()}
    lost, told = (answers[key] for key in item.keys)
    assert (lost[text], lost[status], lost["n_tokens"]) == ("", "empty", 0)
    assert told[text] and told["n_tokens"] == 4
    (row,) = bad.rows.to_pylist()
    assert (row["item"], row["reason"], row["stage"]) == (item.keys[0], "missing", job.stage)
    assert Fault(row["item"], row["reason"], row["detail"]).detail.endswith("other bytes stand there now")


@pytest.mark.slow
def test_what_fails_under_each_of_two_scorers_and_at_every_retry_has_its_reason(photos: Path, tmp_path: Path):
    """The same pictures of the same shard are asked for each time, and their complaints are not those of before."""
    lake, jpeg = tmp_path / "lake", picture(0)
    (photos / "cut.png").write_bytes(jpeg[:-2000])  # all is there but the end: told when it is decoded
    with opened(lake, photos, "reference") as held:
        assert len(scored(held)) == 7
        assert reasons(held) == [("truncated", 1)]
    (photos / "2.png").unlink()
    with opened(lake, photos, "reference", **{"decoding.side": "64"}) as held:
        score_images(held)
        assert reasons(held) == [("missing", 1), ("truncated", 2)]
        for _ in range(2):
            assert retry_quarantined(held, "missing") == 1
            assert reasons(held) == [("truncated", 2)]
            score_images(held)
            assert reasons(held) == [("missing", 1), ("truncated", 2)]


def harm(lake: Path, data: bytes) -> Path:
    """Change one byte in the middle of a picture that the lake keeps; returns its file."""
    for file in (lake / "data/main/payloads").rglob("*.parquet"):
        held = file.read_bytes()
        if data in held:
            at = held.index(data) + len(data) // 2
            file.write_bytes(held[:at] + bytes([held[at] ^ 1]) + held[at + 1 :])
            return file
    raise AssertionError("no file holds it")


@pytest.mark.slow
def test_a_damaged_picture_is_in_quarantine_and_scored_when_its_file_is_restored(photos: Path, tmp_path: Path):
    lake, hurt = tmp_path / "lake", picture(2)
    with opened(lake, photos, "copy") as held:
        ingest(held)
        kept = {path: path.read_bytes() for path in (lake / "data/main/payloads").rglob("*.parquet")}
        file = harm(lake, hurt)
        score_images(held)
        said = held.lake.query("SELECT item, stage, reason, detail FROM quarantine")
        assert [row[:3] for row in said] == [(content_id(hurt), "score images", "damaged")] and str(file) in said[0][3]
        assert held.lake.query("SELECT count(*), count(brightness) FROM image_quality") == [(6, 5)]
    file.write_bytes(kept[file])
    with opened(lake, photos, "copy") as held:
        assert retry_quarantined(held, "damaged") == 1
        score_images(held)
        assert held.lake.query("SELECT count(*), count(brightness) FROM image_quality") == [(6, 6)]
        assert reasons(held) == []


def test_a_file_of_pictures_that_is_gone_or_cut_ends_a_run_with_the_remedy(photos: Path, tmp_path: Path):
    with opened(tmp_path / "lake", photos, "copy") as held:
        ingest(held)
        (file,) = (tmp_path / "lake/data/main/payloads").rglob("*.parquet")
        whole = file.read_bytes()
        for harmed in (whole[:-200], None):
            file.write_bytes(harmed) if harmed else file.unlink()
            with pytest.raises(Damaged, match=rf"{file} cannot be read.*Put it back from a copy"):
                score_images(held)
            assert reasons(held) == []
        file.write_bytes(whole)
        score_images(held)
        assert held.lake.query("SELECT count(brightness) FROM image_quality") == [(6,)]


def test_a_picture_that_no_file_holds_has_a_reason(photos: Path):
    item = referring(photos, ["0.png", "1.png"])
    (first, second) = payloads(WorkItem(item.shard, (*item.keys, "f" * 32), item.paths))
    assert first[0] == list(item.keys)
    assert second[0] == ["f" * 32] and second[1][0].reason == "damaged"  # pyright: ignore[reportAttributeAccessIssue]


def reasons(held: Session) -> list[tuple]:
    return held.lake.query("SELECT reason, count(*) FROM quarantine GROUP BY ALL ORDER BY ALL")


def test_an_item_of_neighbours_reads_no_other_row_group_of_its_file(tmp_path: Path):
    data = [picture(n) for n in range(40)]
    ids = [content_id(each) for each in data]
    rows = {"sha256": ids, "bytes": data, "uri": [""] * 40, "offset": [0] * 40, "length": [len(each) for each in data]}
    path = tmp_path / "payloads.parquet"
    pq.write_table(pa.table(rows), path, row_group_size=8, compression="NONE", use_dictionary=False)
    groups = pq.read_metadata(path)
    columns = [groups.row_group(n).column(1) for n in (0, 1, 4)]
    damaged = bytearray(path.read_bytes())
    for column in columns:  # who reads the bytes of these groups fails
        damaged[column.data_page_offset : column.data_page_offset + column.total_compressed_size] = bytes(
            column.total_compressed_size
        )
    path.write_bytes(damaged)
    found = list(payloads(WorkItem("shard-0", tuple(sorted(ids[18:30])), (str(path),))))
    assert [sha for shas, _ in found for sha in shas] == ids[18:30]
    assert [each for _, given in found for each in given] == data[18:30]
    with pytest.raises(Damaged):
        list(payloads(WorkItem("shard-0", (ids[0], ids[20]), (str(path),))))


def test_the_pictures_of_an_item_are_listed_as_their_files_hold_them(tmp_path: Path, photos: Path):
    with opened(tmp_path / "lake", photos, "copy") as held:
        ingest(held)
        asked = "(SELECT sha256 FROM image_content)"
        listed = pending_in_wave(held.lake, held.plan, "captions", "none", asked=asked)
        (item,) = [each for items in listed for each in items]
        assert len(item.keys) == 6 and list(item.keys) == sorted(item.keys)
        stored = [sha for path in item.paths for sha in pq.read_table(path)["sha256"].to_pylist()]
        assert sorted_by_payload(held.lake, item) == stored
        assert sorted_by_payload(held.lake, WorkItem(item.shard, ("none", *stored[::2]))) == [*stored[::2], "none"]
