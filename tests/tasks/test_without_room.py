"""A row that a model has no room for is data: one row of NULLs and a quarantine row, which a retry tries again."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING, IMAGE_QUALITY, PERPLEXITY, SENTENCE_EMBEDDING
from pairmill.flows.curate import curate_steps
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.image_quality import ImageQuality
from pairmill.ops.models.clip.clip_scores import EmbedImages, EmbedSentences
from pairmill.ops.models.device.engine import Engine
from pairmill.ops.models.language.perplexity import Perplexity
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.measure import score_contents
from pairmill.tasks.measure.score_contents import ScoreImages, ScoreSentences
from pairmill.tasks.run.items.model_job import ModelJob
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import to_vectors
from pairmill.tasks.run.place.identity import Bound
from pairmill.tasks.run.session import Session
from tests.examples import examples
from tests.worlds.cramped import Cramped, inputs
from tests.worlds.shared import new_lake
from tests.worlds.tiny import save_clip
from tests.worlds.tiny_language import WORDS, save_language_model

N = 7
TEXTS = [" ".join(WORDS.split()[n : n + 3 + n % 3]) for n in range(N)]
NO_ROOM = ("out_of_memory", "no room for it alone")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("models")
    return {"clip": save_clip(folder / "clip"), "perplexity": save_language_model(folder / "language")}


def jpeg(n: int) -> bytes:
    out = io.BytesIO()
    pixels = np.random.default_rng(n).integers(0, 256, (4, 5, 3), np.uint8)
    Image.fromarray(pixels).resize((60, 48), Image.Resampling.BICUBIC).save(out, "JPEG")
    return out.getvalue()


def picture_case(folder: Path, spec: str) -> tuple[ModelJob, WorkItem, dict[str, str]]:
    """Score pictures on a CPU and by CLIP, of which one does not decode."""
    datas = [*(jpeg(n) for n in range(N)), b"no picture"]
    shas = [content_id(data) for data in datas]
    pq.write_table(pa.table({"sha256": shas, "bytes": datas, "uri": pa.nulls(N + 1, pa.string()),
                             "offset": pa.nulls(N + 1, pa.int64()), "length": pa.nulls(N + 1, pa.int64())}),
                   folder / "payloads.parquet")  # fmt: skip
    op, decode = EmbedImages(spec, batch_size=3), Decode(32)
    taken = inputs(op, {"pixels": [decode(data) for data in datas[:-1]]})
    scorers = (Bound(IMAGE_QUALITY, ImageQuality(), "q"), Bound(IMAGE_EMBEDDING, Cramped(op), "v"))
    item = WorkItem("shard", tuple(shas), (str(folder / "payloads.parquet"),), ("image_quality", "image_embedding"))
    return ScoreImages(scorers, decode), item, {shas[row]: each for row, each in taken.items()}


def sentence_case(folder: Path, bound: Bound) -> tuple[ModelJob, WorkItem, dict[str, str]]:
    keys = [f"sentence-{n}" for n in range(N)]
    pq.write_table(pa.table({"content": keys, "text": TEXTS, "commit": [1] * N}), folder / "sentences.parquet")
    taken = inputs(bound.op, {"text": TEXTS})
    item = WorkItem("shard", tuple(keys), (str(folder / "sentences.parquet"),), (bound.score.table,))
    return (
        ScoreSentences((replace(bound, op=Cramped(bound.op)),)),
        item,
        {keys[row]: each for row, each in taken.items()},
    )


Case = tuple[ModelJob, WorkItem, dict[str, str]]


@pytest.fixture(scope="module")
def cases(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    folders = [tmp_path_factory.mktemp(name) for name in ("pictures", "sentences", "language")]
    return {
        "image_vector": picture_case(folders[0], models["clip"]),
        "sentence_vector": sentence_case(
            folders[1], Bound(SENTENCE_EMBEDDING, EmbedSentences(models["clip"], batch_size=3), "v")
        ),
        "perplexity": sentence_case(folders[2], Bound(PERPLEXITY, Perplexity(models["perplexity"], batch_size=3), "p")),
    }


def in_little_room(job: Any, unfit: frozenset[str], most: int) -> ModelJob:
    """The job, whose models find no room."""
    scorers = tuple(
        replace(each, op=replace(each.op, unfit=unfit, most=most)) if isinstance(each.op, Cramped) else each
        for each in job.scorers
    )
    return replace(job, scorers=scorers)


def values(parts: list[Part], column: str) -> dict[str, list[Any]]:
    """What each key has, a list with an entry a row."""
    found: dict[str, list[Any]] = {}
    for part in parts:
        if column in part.rows.column_names:
            for row in part.rows.to_pylist():
                found.setdefault(row.get("sha256", row.get("content")), []).append(row[column])
    return found


def numbers(value: Any) -> np.ndarray:
    return to_vectors(pa.array([value])) if isinstance(value, bytes) else np.array([value])


def on_an_engine(job: ModelJob, item: WorkItem) -> list[Part]:
    engine = Engine(job, feeders=2)
    try:
        return list(job.parts(item, engine.run(job.pieces(item))))
    finally:
        engine.close()


@pytest.mark.parametrize("column", ["image_vector", "sentence_vector", "perplexity"])
@given(unfit=st.sets(st.integers(0, N - 1)), most=st.integers(1, 3), fed=st.booleans())
@examples(20)
def test_every_key_has_one_row_and_the_faults_name_just_what_has_no_room(
    column: str, cases: dict[str, Case], unfit: set[int], most: int, fed: bool
):
    job, item, taken = cases[column]
    named = {item.keys[row] for row in unfit}
    full = in_little_room(job, frozenset(taken[key] for key in named), most)
    parts = on_an_engine(full, item) if fed else list(full(item))
    found, expected = values(parts, column), values(list(job(item)), column)
    assert sorted(found) == sorted(item.keys) and all(len(each) == 1 for each in found.values())
    readable = taken.keys()  # of the others nothing is known either way
    assert {key for key in readable if found[key] == [None]} == named
    for key in readable - named:
        np.testing.assert_allclose(numbers(found[key][0]), numbers(expected[key][0]), rtol=1e-3, atol=1e-3)
    told = [row for part in parts if part.table == "quarantine" for row in part.rows.to_pylist()]
    no_room = [row["item"] for row in told if (row["reason"], row["detail"]) == NO_ROOM]
    assert sorted(no_room) == sorted(named)
    assert len(told) == len(no_room) + len(item.keys) - len(readable)


def test_a_picture_without_room_keeps_what_needs_none(cases: dict[str, Case]):
    job, item, taken = cases["image_vector"]
    parts = list(in_little_room(job, frozenset(taken.values()), 3)(item))
    assert values(parts, "sharpness") == values(list(job(item)), "sharpness")
    assert set(map(tuple, values(parts, "image_vector").values())) == {(None,)}


@contextmanager
def started(place: Path, models: dict[str, str]) -> Iterator[Session]:
    rules = [{"name": "fluent", "keep": "perplexity >= 1"}]
    settings = {"name": "small", "models": models, "sentences": rules, "decoding": {"side": 32}}
    lake = str(new_lake(place / "lake"))
    with session(Recipe.model_validate(settings), [str(place / "pages")], lake, Compute(workers=1)) as held:  # pyright: ignore[reportCallIssue]
        ingest(held)
        yield held


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Three pictures and four sentences."""
    pages = tmp_path / "pages"
    pages.mkdir()
    for n in range(3):
        (pages / f"{n}.jpg").write_bytes(jpeg(n))
    blocks = "".join(f'<p>{text.capitalize()} .</p><img src="{n}.jpg" alt="a">' for n, text in enumerate(TEXTS[:3]))
    (pages / "a.html").write_text(f"<article>{blocks}</article>")
    (tmp_path / "full").touch()
    return tmp_path


def plant(monkeypatch: pytest.MonkeyPatch, place: Path, column: str, victim: dict[str, list]) -> None:
    """Have the op that adds ``column`` find no room for the ``victim``, in whatever process, while 'full' is there."""

    def bound(*arguments: Any) -> tuple[Bound, ...]:
        return tuple(cramped(each) if each.score.columns[0].name == column else each for each in unchanged(*arguments))

    def cramped(each: Bound) -> Bound:
        unfit = frozenset(inputs(each.op, victim).values())
        return replace(each, op=Cramped(each.op, unfit, while_there=str(place / "full")))

    unchanged = score_contents.bound
    monkeypatch.setattr(score_contents, "bound", bound)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("column", "table", "key", "step"),
    [
        ("image_vector", "image_embedding", "sha256", "score images"),
        pytest.param("sentence_vector", "sentence_embedding", "content", "embed sentences", marks=pytest.mark.full),
        ("perplexity", "perplexity", "content", "score perplexity"),
    ],
)
def test_the_run_goes_on_tries_it_no_more_and_a_retry_scores_it(
    column: str, table: str, key: str, step: str, place: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    def score(held: Session) -> list[tuple]:
        (score_contents.score_images if column == "image_vector" else score_contents.score_sentences)(held)
        return held.lake.query(
            f"SELECT {key}, {column} FROM {table} WHERE scorer = ? ORDER BY ALL", (held.plan.scorer(table),)
        )

    with started(place, models) as held:
        if column == "image_vector":
            victim, shown = content_id(jpeg(1)), {"pixels": [Decode(32)(jpeg(1))]}
        else:
            victim, text = held.lake.query("SELECT content, text FROM sentence_content ORDER BY content LIMIT 1")[0]
            shown = {"text": [text]}
        plant(monkeypatch, place, column, shown)
        found = score(held)
        assert len(found) == 3 and [row[0] for row in found if row[1] is None] == [victim]
        assert held.lake.query("SELECT item, stage, reason, detail FROM quarantine") == [(victim, step, *NO_ROOM)]
        counted = dict(held.counts)
        assert score(held) == found and held.counts == counted  # it is not tried again by itself
        assert retry_quarantined(held, "out_of_memory") == 1
        assert score(held) == found  # there is no more room than before
        assert held.lake.query("SELECT item, reason FROM quarantine") == [(victim, "out_of_memory")]
        (place / "full").unlink()
        assert retry_quarantined(held, "out_of_memory") == 1
        scored = dict(score(held))
        assert scored[victim] is not None and len(scored) == 3
        assert {row for row in found if row[0] != victim} <= set(scored.items())
        assert not held.lake.query("SELECT * FROM quarantine") and retry_quarantined(held, "out_of_memory") == 0


@pytest.mark.slow
def test_a_whole_line_publishes_what_had_room(place: Path, models: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    with started(place, models) as held:
        victim, text = held.lake.query("SELECT content, text FROM sentence_content ORDER BY content LIMIT 1")[0]
        plant(monkeypatch, place, "image_vector", {"pixels": [Decode(32)(jpeg(1))]})
        plant(monkeypatch, place, "sentence_vector", {"text": [text]})
        published = curate_steps(held, lambda step, session: step(session))
        kept = held.lake.query(
            "SELECT i.sha256, p.text1 FROM pairs p JOIN images i ON i.image_id = p.image_id WHERE version = ?",
            (published.version,),
        )
        assert {sha for sha, _ in kept} == {content_id(jpeg(0)), content_id(jpeg(2))}
        assert text not in {shown for _, shown in kept}
        items = held.lake.query("SELECT item FROM quarantine WHERE reason = 'out_of_memory' ORDER BY ALL")
        assert items == sorted([(victim,), (content_id(jpeg(1)),)])
