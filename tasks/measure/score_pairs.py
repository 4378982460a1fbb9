"""Score pairs of an image and a text: candidate sentences after retrieval, and the generated texts of a wave.

Ops read the decoded image; CLIP compares a generated text with the image's stored vector.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.pending_pairs import pending_candidates, pending_texts_of_wave
from pairmill.catalog.pending.chosen_captions import chosen_tables
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import pending_text_similarity
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Score, Stage
from pairmill.catalog.terms.scores import IMAGE_EMBEDDING
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.pair.similarity import VERSION, similarity, similarity_to_others
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.measure.scoring_job import Scored, ScoringJob, prepare_scores
from pairmill.tasks.run.items.model_job import Piece
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.payloads import batches
from pairmill.tasks.run.items.rows import read_rows, scalars, to_vectors
from pairmill.tasks.run.place.identity import Bound, bound, clip, decoder
from pairmill.tasks.run.session import Session

# Images decoded at once, each with up to 12 candidate sentences.
PICTURES = 16
_COLUMNS = {"captions": "text", "synthetic": "synthetic_text"}


def score_pairs(session: Session) -> None:
    """Score images with the candidate sentences that retrieval found, by each score of pairs that the recipe reads."""
    scorers = bound(session.plan, "pair")
    if not scorers:
        return
    calibrate(session, Stage.CAPTION)
    for each in scorers:
        job = ScorePairs((each,), decoder(session.recipe))
        session.work_rounds(job.stage, pending_candidates(session.lake, session.plan, each.score), job)


def score_generated(session: Session, texts: str) -> None:
    """Score the wave's images with their generated texts in the table ``texts``, 'captions' or 'synthetic'.

    A score by which the recipe chooses among captions is computed for every captioner's, before other scores of the
    chosen caption.
    """
    plan, job = session.plan, partial(ScorePairs, decode=decoder(session.recipe))
    wanted = {score.name for score in plan.made_from_texts(texts)}
    scorers = [each for each in bound(plan, "image") if each.score.name in wanted] if wanted else []
    compared = chosen_tables(plan) if texts == "captions" else ()
    for each in (each for each in scorers if each.score.table in compared):
        for place in plan.compared_captioners:
            step = f"{each.score.step} {plan.recipe.captioned_by[place].name}" if place else each.score.step
            of_it = pending_texts_of_wave(session.lake, plan.alone(place), each.score, texts, _COLUMNS[texts], True)
            session.work_rounds(step, of_it, job((each,)))
    for each in (each for each in scorers if each.score.table not in compared):
        pending = pending_texts_of_wave(session.lake, plan, each.score, texts, _COLUMNS[texts])
        session.work_rounds(each.score.step, pending, job((each,)))


@dataclass(frozen=True)
class ScorePairs(ScoringJob):
    """Model job: decode each image once and score it with each of its texts, into the table of one score.

    An image that does not decode gets rows of NULLs (so that its pairs are not pending again) and a quarantine row. So
    does a pair that does not fit the model's memory.
    """

    unit: ClassVar[str] = "pictures"
    item_rows: ClassVar[int] = 2_048

    decode: Decode

    def pieces(self, item: WorkItem, rows: int = 0) -> Iterator[Piece]:
        """Yield the bytes of the item's images, each with its texts, in batches of ``rows`` images, 0 for PICTURES."""
        place = {sha: n for n, sha in enumerate(item.keys)}
        for shas, datas in batches(item, rows or PICTURES):
            texts = [item.inputs["texts"][place[sha]] for sha in shas]
            yield Piece(tuple(shas), (datas, texts, [_keys(item, place[sha]) for sha in shas]))

    def prepare(self, piece: Piece) -> Scored:
        """Decode a batch's images; return the model's prepared input for each pair of image and text."""
        datas, texts, keys = piece.data
        decoded = [data if isinstance(data, Fault) else self.decode(data) for data in datas]
        rows = [(pixels, text) for pixels, of_one in zip(decoded, texts, strict=True) for text in of_one]
        good = [n for n, (pixels, _) in enumerate(rows) if not isinstance(pixels, Fault)]
        bad = [pixels.about(sha) for sha, pixels in zip(piece.keys, decoded, strict=True) if isinstance(pixels, Fault)]
        batch = {"pixels": [rows[n][0] for n in good], "text": [rows[n][1] for n in good]}
        flat = tuple(key for of_one in keys for key in of_one)
        return prepare_scores([*self.scorers], batch, flat, good, bad)

    def fetch(self, running: Scored) -> Scored:
        """Wait for a batch's values and return them; a fault of a pair becomes a fault of its image."""
        done = super().fetch(running)
        return replace(done, bad=[fault.about(fault.item.split(" ")[0]) for fault in done.bad])

    def parts(self, item: WorkItem, found: list[Scored]) -> Iterator[Part]:
        """Yield the rows of the score from the results of an item's batches, and a quarantine row for each fault."""
        return (self._with_keys(item, part) for part in super().parts(item, found))

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for the pairs of images that kill their worker, so that they are not pending again."""
        keys = [key for n, _ in enumerate(item.keys) for key in _keys(item, n)]
        return [self._with_keys(item, part) for part in self.null_parts(item, keys)]

    def wanted(self, tables: tuple[str, ...]) -> list[Bound]:
        """Return the job's one scorer, whatever the ``tables``: items are listed for its table alone."""
        return [*self.scorers]

    def _with_keys(self, item: WorkItem, part: Part) -> Part:
        """Split the key of a pair into its two columns, or add the digest of a generated text."""
        if part.table == "quarantine":
            return part
        keys = part.rows["sha256"].to_pylist()
        if "contents" in item.inputs:
            shas, contents = zip(*(key.split(" ") for key in keys), strict=True)
            rows = part.rows.set_column(0, "sha256", pa.array(shas, pa.string()))
            rows = rows.add_column(1, "content", pa.array(contents, pa.string()))
        else:
            digest_of = dict(zip(item.keys, item.inputs["input_digests"], strict=True))
            digests = pa.array([digest_of[key] for key in keys], pa.string())
            rows = part.rows.append_column("input_digest", digests)
        return replace(part, rows=rows)


def _keys(item: WorkItem, at: int) -> list[str]:
    """Return the keys of the pairs of the image at index ``at``: 'sha256 content', or its sha256 alone."""
    sha, contents = item.keys[at], item.inputs.get("contents")
    return [sha] if contents is None else [f"{sha} {content}" for content in contents[at]]


def text_similarity_scorer(plan: Plan, score: Score) -> Scorer:
    """Return the scorer of the similarity ``score``: its version, and the scorers of its texts and image vectors."""
    return Scorer(score.name, score.table, VERSION, {}, "", tuple(plan.scorer(name) for name in score.made_from))


def score_texts(session: Session, plan: Plan, score: Score, texts: str, column: str, step: str = "") -> None:
    """Compute the CLIP similarity ``score`` between the wave's images and their generated texts.

    The texts are in ``column`` of the table ``texts``. A text about something else has a low similarity. ``step`` is
    the step's displayed name, '' for the score's own.
    """
    items = pending_text_similarity(session.lake, plan, score, texts, column)
    job = ScoreTexts(clip(session.recipe), score.table, plan.scorer(score.table), score.step)
    session.work_rounds(step or score.step, items, job)


@dataclass(frozen=True)
class ScoreTexts:
    """Job: compute the CLIP similarity of each image of one shard to its text, and to another's (a canary)."""

    model: ClassVar[str] = IMAGE_EMBEDDING.model
    unit: ClassVar[str] = "pictures"

    clip: Clip
    table: str  # the table to fill, 'caption_similarity' or 'synthetic_similarity'
    scorer: str
    stage: str  # the step's name in quarantine rows

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the texts of one item; return rows of ``table``, one an image."""
        rows = read_rows(item, ["sha256", "image_vector"], "sha256")
        texts = item.inputs["texts"]
        vectors = to_vectors(rows["image_vector"]), self.clip.embed_texts(texts)
        return [self._part(item, similarity(*vectors), similarity_to_others(*vectors, texts))]

    def poisoned(self, item: WorkItem) -> list[Part]:
        """Make rows of NULLs for images whose texts kill their worker: a rule on the score then drops them."""
        none = np.full(len(item.keys), np.nan)
        return [self._part(item, none, none)]

    def _part(self, item: WorkItem, scores: np.ndarray, others: np.ndarray) -> Part:
        """Make the rows of the scores."""
        columns = {
            "sha256": pa.array(item.keys, pa.string()),
            "input_digest": pa.array(item.inputs["input_digests"], pa.string()),
            self.table: pa.array(scalars(scores), pa.float64()),
            self.table.replace("similarity", "canary"): pa.array(scalars(others), pa.float64()),
        }
        return Part(self.table, pa.table(columns), self.scorer)
