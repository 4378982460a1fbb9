"""What the jobs write for rows that kill their worker: enough that these are not tried again."""

from concurrent.futures import Future
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.parts import Ingest
from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, IMAGE_HASH, IMAGE_QUALITY, SENTENCE_EMBEDDING
from pairmill.ops.ban_list import BanList
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.image_quality import ImageQuality
from pairmill.ops.image.phash import PerceptualHash
from pairmill.ops.models.backends import LanguageModel
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.clip.clip_scores import EmbedImages, EmbedSentences
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.pair.tags import ZeroShotTags
from pairmill.ops.read.places import retries
from pairmill.ops.read.source import open_source
from pairmill.ops.text.split import SentenceSplitter
from pairmill.tasks.collect.ingest import IngestSettings, IngestUnits, reader_names, shard_item
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.fusion import FuseTexts
from pairmill.tasks.generate.generative_job import Answers, Queries
from pairmill.tasks.generate.tag import TagPictures
from pairmill.tasks.measure.score_contents import ScoreImages, ScoreSentences
from pairmill.tasks.measure.score_pairs import ScoreTexts
from pairmill.tasks.run.items.partition import Job, Output, write_parts
from pairmill.tasks.run.items.rows import to_blobs
from pairmill.tasks.run.place.identity import Bound
from tests.worlds.jobs import CAPTIONS, FUSED
from tests.worlds.model_answers import generate_texts
from tests.worlds.s3 import bucket, fresh_filesystem, server
from tests.worlds.s3_fast import fill, quick
from tests.worlds.tiny_chat import save_chat_model
from tests.worlds.unwell import unwell

__all__ = ["bucket", "quick", "server"]  # fixtures

MODELS = Path(__file__).resolve().parents[2] / "infra/demo/models"
CLIP = Clip("open_clip:local-dir:nowhere")
EMBED = EmbedImages("open_clip:local-dir:nowhere")
OPS = ((IMAGE_QUALITY, ImageQuality()), (IMAGE_HASH, PerceptualHash()), (IMAGE_EMBEDDING, EMBED))
IMAGES = ScoreImages(tuple(Bound(score, op, score.name) for score, op in OPS), Decode())
TAGGED = TagPictures(ZeroShotTags(("dog",)), CLIP, "t", "clip")
COMPARED = ScoreTexts(CLIP, "caption_similarity", "s", "score captions")
INPUTS = {"input_digests": ("d", "d"), "captions": ["", ""], "tags": [[], []], "sentences": ["", ""]}

SETTINGS = IngestSettings(10**6, 10**6, SentenceSplitter(), "copy", BanList(), reader_names(Ingest()))  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    ("job", "tables"),
    [
        (IMAGES, ("image_quality", "image_hash", "image_embedding")),
        (CAPTIONS, ("captions",)),
        (FUSED, ("synthetic",)),
        (TAGGED, ("tags",)),
        (COMPARED, ("caption_similarity",)),
    ],
    ids=["score images", "caption", "fuse", "tag", "score captions"],
)
def test_a_poisoned_picture_gets_a_row_in_every_table_it_was_wanted_for(job: Job, tables: tuple, tmp_path: Path):
    item = WorkItem("shard", ("a", "b"), tables=tables, inputs=INPUTS)
    written = write_parts(job.poisoned(item), item, Output(f"{tmp_path}/", "run", 3))  # type: ignore[attr-defined]
    assert [each.table for each in written] == list(tables)
    for each in written:
        assert pq.read_table(each.path, columns=["sha256"])["sha256"].to_pylist() == ["a", "b"]


def test_a_sentence_that_kills_its_worker_has_a_row_and_its_complaint_the_name_of_the_step():
    job = ScoreSentences((Bound(SENTENCE_EMBEDDING, EmbedSentences("open_clip:local-dir:nowhere"), "v"),))
    (part,) = job.poisoned(WorkItem("shard", ("a",), tables=("sentence_embedding",)))
    assert (part.table, part.scorer) == ("sentence_embedding", "v") and job.stage == SENTENCE_EMBEDDING.step
    assert part.rows.to_pylist() == [{"content": "a", "sentence_vector": None}]


def test_a_text_that_kills_its_worker_has_no_similarity_but_is_known_by_its_digest():
    (part,) = COMPARED.poisoned(WorkItem("shard", ("a", "b"), inputs={"input_digests": ("d", "e")}))
    assert part.rows.to_pylist() == [
        {"sha256": "a", "input_digest": "d", "caption_similarity": None, "caption_canary": None},
        {"sha256": "b", "input_digest": "e", "caption_similarity": None, "caption_canary": None},
    ]


def test_of_a_text_that_was_too_long_the_beginning_is_a_row_and_a_complaint():
    cut = Generation("dog dog cat", 512, "length", 0.1, "model_error", "the server sent 4,000,000 bytes")
    answered: Future[Generation] = Future()
    answered.set_result(cut)
    ask = Queries(HttpModel("http:x@http://h/v1"), Decode(), 32, "Describe.")
    found = CaptionPictures(ask, "Describe.", "c", name="main").fetch((Answers({}, []), ["a"], [answered]))
    captions, complaint = CAPTIONS.parts(WorkItem("shard", ("a",)), [found])
    row = captions.rows.to_pylist()[0]
    assert (row["text"], row["status"], row["n_tokens"]) == ("dog dog cat", "cut_off", 512)
    (told,) = complaint.rows.to_pylist()
    assert (told["item"], told["reason"], told["detail"]) == ("a", cut.error, cut.detail)


def test_a_picture_that_the_tagger_could_not_see_has_a_row_without_tags(tmp_path: Path):
    path, clip = tmp_path / "vectors.parquet", Clip(f"open_clip:local-dir:{MODELS / 'clip'}")
    vector = to_blobs(clip.embed_texts(["a dog"]))[0]
    vectors = {"sha256": ["a", "b"], "image_vector": pa.array([None, vector], pa.binary()), "commit": [1, 1]}
    pq.write_table(pa.table(vectors), path)
    (part,) = TagPictures(ZeroShotTags(("dog",)), clip, "t", "clip")(WorkItem("shard", ("a", "b"), (str(path),)))
    rows = {row["sha256"]: row for row in part.rows.to_pylist()}
    assert rows["a"] == {"sha256": "a", "tags": None, "tag_similarities": None}
    assert rows["b"]["tags"] == ["dog"]


def test_texts_are_fused_without_a_file_of_pictures_and_one_too_long_is_quarantined(tmp_path: Path):
    model = LanguageModel(save_chat_model(tmp_path, context=128))
    texts = {"captions": ["A dog.", "A cat. " * 40], "tags": [["dog"], []], "sentences": ["It ran.", ""]}
    item = WorkItem("shard", ("a", "b"), inputs={"input_digests": ("d", "e")} | texts)
    fused, bad = FuseTexts(Queries(model, None, 6, "A dog."), "{caption} {tags} {sentence}", "f")(item)
    assert fused.rows.select(["sha256", "input_digest", "n_tokens"]).to_pylist() == [
        {"sha256": "a", "input_digest": "d", "n_tokens": 6},
        {"sha256": "b", "input_digest": "e", "n_tokens": 0},
    ]
    assert fused.rows["prompt"][0].as_py() == "A dog. dog It ran."
    (said,) = generate_texts(model, ["A dog. dog It ran."], 6)
    assert fused.rows["synthetic_text"][0].as_py() == printable(said.text)
    assert fused.rows["synthetic_status"][1].as_py() == "empty"
    assert bad.rows.select(["item", "stage", "reason"]).to_pylist() == [
        {"item": "b", "stage": "fuse", "reason": "too_large"}
    ]


def test_a_poisoned_page_counts_as_read(tmp_path: Path):
    (tmp_path / "page.html").write_text("<p>Some words.</p>")
    source = open_source(str(tmp_path))
    (unit,) = listed = list(source.units())
    (part,) = IngestUnits(source, SETTINGS).poisoned(shard_item(listed, "shard"))
    assert part.table == "inputs"
    row = {"uri": unit.uri, "size": unit.size, "etag": unit.etag, "reader": "html_folder 1, en sentences 1"}
    assert part.rows.select(list(row)).to_pylist() == [row]


def test_what_had_to_be_asked_again_is_counted_with_its_unit(server, bucket, quick, monkeypatch):
    fill({f"{n:03}.html": b"<article><p>Some words of a page.</p></article>" for n in range(60)})
    with unwell(server, share=0.3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fresh_filesystem()
        source = open_source("s3://corpus")
        listed = list(source.listed())
        before = retries.count()
        parts = list(IngestUnits(source, SETTINGS)(shard_item(listed, "shard")))
        counted = next(part.rows["retries"].to_pylist() for part in parts if part.table == "inputs")
        assert len(counted) == 60 and sum(counted) == retries.count() - before > 0
    fresh_filesystem()
