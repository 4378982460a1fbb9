"""What is in quarantine can be told and tried again, just that, and joins the corpus."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.pending import quarantine
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.sweep import sweep
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.measure.score_contents import score_images
from pairmill.tasks.run.items.partition import Output, Part, write_parts
from pairmill.tasks.run.items.rows import read_rows, to_vectors
from pairmill.tasks.run.session import Session
from tests.worlds.shared import new_lake
from tests.worlds.web import photograph

COMPUTE = Compute.model_validate({"workers": 1})


@contextmanager
def run(place: Path, **settings: str) -> Iterator[Session]:
    with session(load_recipe("demo", settings), [str(place / "pages")], str(new_lake(place / "lake")), COMPUTE) as held:
        ingest(held)
        yield held


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A page with a small and a large picture, a page with one more of each, and what is no picture."""
    pages = tmp_path / "pages"
    pages.mkdir()
    for n, side in ((1, 64), (2, 256), (3, 64), (4, 256)):
        (pages / f"{n}.jpg").write_bytes(photograph(n, side))
    (pages / "5.jpg").write_bytes(b"no picture")
    for name, shown in (("a", (1, 2)), ("b", (3, 4, 5))):
        images = "".join(f'<img src="{n}.jpg" alt="a picture">' for n in shown)
        (pages / f"{name}.html").write_text(f"<article><p>Some words on page {name}.</p>{images}</article>")
    return tmp_path


def names(held: Session) -> list[str]:
    return [row[0].rpartition("/")[2] for row in held.lake.query("SELECT url FROM images ORDER BY url")]


def test_what_is_in_quarantine_is_told_by_reason_and_source_with_an_example(place: Path):
    with run(place, **{"ingest.max_pixels": "10000"}) as held:
        kinds = quarantine.fault_counts(held.lake)
        source = str(place / "pages")
        assert [(kind.reason, kind.stage, kind.source, kind.items) for kind in kinds] == [
            ("bomb", "ingest", source, 2),
            ("not_an_image", "ingest", source, 1),
        ]
        assert kinds[0].example.endswith("2.jpg") and "256 x 256" in kinds[0].detail


def test_a_reason_that_is_none_is_refused_with_the_nearest_or_with_those_that_are():
    with pytest.raises(PairmillError, match=r"did you mean 'bomb'\?$"):
        quarantine.check_reason("bombs")
    with pytest.raises(PairmillError, match=r"bomb.*http_status"):
        quarantine.check_reason("sadness")


@pytest.mark.slow
def test_retried_pictures_join_their_documents_and_nothing_else_changes(place: Path):
    with run(place, **{"ingest.max_pixels": "10000"}) as held:
        assert names(held) == ["1.jpg", "3.jpg"]
        documents = held.lake.query("SELECT document_id FROM documents ORDER BY ALL")
        sentences = held.lake.query("SELECT sentence_id FROM sentences ORDER BY ALL")
        assert not held.notes
    with run(place) as held:
        assert names(held) == ["1.jpg", "3.jpg"]
        told = "2 pictures were refused as bomb by a lower limit than this recipe's: `pairmill run demo --retry bomb`"
        assert any(told in note for note in held.notes)
        assert retry_quarantined(held, "bomb") == 2
        assert names(held) == ["1.jpg", "2.jpg", "3.jpg", "4.jpg"]
        assert held.lake.query("SELECT document_id FROM documents ORDER BY ALL") == documents
        assert held.lake.query("SELECT sentence_id FROM sentences ORDER BY ALL") == sentences
        assert held.lake.query("SELECT count(*) FROM superseded") == [(0,)]
        assert held.lake.query("SELECT reason FROM quarantine") == [("not_an_image",)]
        assert retry_quarantined(held, "bomb") == 0


@pytest.mark.slow
def test_what_fails_again_stays_in_quarantine_once(place: Path):
    for _ in range(3):
        with run(place) as held:
            assert retry_quarantined(held, "not_an_image") == 1
            assert held.lake.query("SELECT reason, count(*) FROM quarantine GROUP BY ALL") == [("not_an_image", 1)]
            assert len(names(held)) == 4


@pytest.mark.slow
def test_pictures_that_a_stage_could_not_work_on_are_pending_again_and_scored(place: Path):
    """As after a worker died on them: rows of NULLs that say so, which a retry takes back, as often as it is asked."""
    with run(place) as held:
        score_images(held)
        good = held.lake.query("SELECT * EXCLUDE (commit) FROM image_quality ORDER BY sha256")
        (victim, shard), *_ = held.lake.query("SELECT sha256, shard FROM image_content ORDER BY sha256")
        for _ in range(2):
            mark_as_poison(held, victim, shard)
            score_images(held)
            assert held.lake.query("SELECT count(*) FROM image_quality WHERE brightness IS NULL") == [(1,)]
            assert retry_quarantined(held, "poison") == 1
            assert held.lake.query("SELECT count(*) FROM quarantine WHERE reason = 'poison'") == [(0,)]
            score_images(held)
            assert held.lake.query("SELECT * EXCLUDE (commit) FROM image_quality ORDER BY sha256") == good
            done = held.lake.query(
                "SELECT sum(rows) FROM partitions WHERE \"table\" = 'image_quality' UNION ALL "
                "SELECT count(*) FROM image_quality"
            )
            assert done[0] == done[1]


@pytest.mark.slow
def test_pictures_decoded_smaller_than_the_model_takes_them_are_noted_with_the_remedy(place: Path):
    with run(place, **{"decoding.side": "64"}) as held:
        score_images(held)
        (told,) = [note for note in held.notes if "decoded" in note]
        assert "of 64 pixels" in told and "which takes 96: set decoding.side to 96" in told
    with run(place) as held:
        score_images(held)
        assert not [note for note in held.notes if "decoded" in note]


@pytest.mark.slow
def test_a_picture_that_was_scored_at_the_second_try_is_read_as_then(place: Path):
    """Its row of NULLs stands in a file yet, which here sorts behind all others, and which a sweep removes."""
    with run(place) as held:
        scorer = held.plan.scorer("image_embedding")
        (victim, shard), *_ = held.lake.query("SELECT sha256, shard FROM image_content ORDER BY sha256")
        nothing = pa.table({"sha256": [victim], "image_vector": pa.array([None], pa.binary())})
        output = Output(held.lake.data_path, "z" * 32, held.writer.begin("score images"))
        null = write_parts([Part("image_embedding", nothing, scorer)], WorkItem(shard, (victim,)), output)
        held.writer.commit(null)
        quarantined(held, victim, shard)
        assert retry_quarantined(held, "poison") == 1
        score_images(held)
        for _ in range(2):
            files = paths_by_shard(held.lake, "image_embedding", [shard], scorer)[shard]
            rows = read_rows(WorkItem(shard, (victim,), files), ["sha256", "image_vector"], "sha256")
            assert to_vectors(rows["image_vector"]).shape[0] == 1
            sweep(held.writer, older_than_seconds=0, snapshot_seconds=0)
        assert not Path(null[0].path).exists()


@pytest.mark.slow
def test_a_retry_takes_back_complaints_of_its_reason_and_of_what_is_tried_again_alone(place: Path):
    with run(place) as held:
        (victim, shard), *_ = held.lake.query("SELECT sha256, shard FROM image_content ORDER BY sha256")
        empty = {
            "sha256": [victim],
            "shard": [shard],
            "scorer": ["c"],
            "status": ["empty"],
            "text": [""],
            "commit": [1],
        }
        held.lake.insert("captions", pa.table(empty))
        held.lake.insert(
            "captions", pa.table(empty | {"status": ["repeating"], "finish_reason": ["length"]})
        )  # too long
        for stage, reason in (
            ("caption", "model_error"), ("caption", "out_of_memory"), ("score images", "poison"),
            ("ScoreSentences", "model_error"), ("ingest", "model_error"),
        ):  # fmt: skip
            quarantined(held, victim, shard, stage, reason)
        other = "INSERT INTO partitions (\"table\", partition_id, shard) VALUES ('quarantine', ?, ?)"
        for where in (shard, "elsewhere"):
            held.lake.execute(other, (where, where))
        assert retry_quarantined(held, "model_error") == 1
        assert held.lake.query("SELECT count(*) FROM captions") == [(0,)]
        assert set(held.lake.query("SELECT stage, reason FROM quarantine WHERE item = ?", (victim,))) == {
            ("caption", "out_of_memory"), ("score images", "poison"), ("ScoreSentences", "model_error"),
            ("ingest", "model_error"),
        }  # fmt: skip
        ids = held.lake.query("SELECT partition_id FROM partitions WHERE \"table\" = 'quarantine'")
        assert ("elsewhere",) in ids and (shard,) not in ids


def mark_as_poison(held: Session, sha256: str, shard: str) -> None:
    for table, column in (
        ("image_quality", "brightness"),
        ("image_hash", "phash"),
        ("image_embedding", "image_vector"),
    ):
        held.lake.execute(f"UPDATE {table} SET {column} = NULL WHERE sha256 = ?", (sha256,))
    quarantined(held, sha256, shard)


def quarantined(held: Session, sha256: str, shard: str, stage: str = "score images", reason: str = "poison") -> None:
    held.lake.execute(
        "INSERT INTO quarantine BY NAME SELECT ? AS item, ? AS stage, ? AS reason, '' AS source, ? AS shard, "
        "1 AS commit",
        (sha256, stage, reason, shard),
    )
