"""Draw simple random samples of a version's images above a threshold, for people to judge, and read their judgements.

Images near the threshold alone cannot tell how many of all kept ones are wrong; a simple random sample can.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, TypeVar

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.why import Facts
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.recipe.plan import Check, quantities
from pairmill.catalog.recipe.thresholds import Quantity
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.judgement_log import DrawnSample, Judgement, new_id, read_log

MOST_JUDGED = 2_000  # images of one sample; 77 judgements without an error bound a share by 3 % at 90 % confidence
_TEXTS = {
    "alt_similarity": "alt text",
    "caption_similarity": "caption",
    "synthetic_similarity": "synthetic",
}  # column of a rule: the text that it compares with the picture; for any other the best sentence is judged


def drawn_sample(gallery: Gallery, dataset: Dataset, check: Check, threshold: float, seed: str = "") -> DrawnSample:
    """Return a new sample of the images that ``check`` keeps at ``threshold``; see `DrawnSample` for its frame.

    Raises:
        PairmillError: The rule has no lower bound, or no image is in the frame.
    """
    quantity = lower_bound(check, gallery)
    if quantity is None:
        raise PairmillError(f"rule '{check.name}' has no lower threshold to sample above; choose another rule.")
    frame = _frame(quantity.sql, check.name, threshold)
    population = gallery.rows(f"SELECT count(*) AS n FROM images WHERE {frame}")[0]["n"]
    if not population:
        raise PairmillError(
            f"no image of {dataset} has {quantity.label} of at least {threshold:g}; choose a lower one."
        )
    return DrawnSample(
        dataset=dataset.name, version=dataset.version, content_digest=dataset.content_digest, rule=check.name,
        quantity=quantity.sql, threshold=threshold, population=population, seed=seed or new_id(),
    )  # fmt: skip


def images_of(gallery: Gallery, sample: DrawnSample, most: int = MOST_JUDGED) -> list[dict[str, Any]]:
    """Return the first ``most`` images of a sample (image_id, sha256, value, dropped_by), in its order.

    At 1M images this takes 0.6 s, most of it for the hashes.
    """
    order = f"sha256(image_id || {quoted(sample.seed)})"
    columns = f"image_id, sha256, dropped_by, CAST({sample.quantity} AS DOUBLE) AS value"
    frame = _frame(sample.quantity, sample.rule, sample.threshold)
    return gallery.rows(f"SELECT {columns} FROM images WHERE {frame} ORDER BY {order}, image_id LIMIT {most}")


def lower_bound(check: Check, gallery: Gallery) -> Quantity | None:
    """Return the quantity of a rule that has a lower bound, None for a rule without one."""
    if not set(check.columns) <= gallery.types.keys():
        return None
    return next((each for each in quantities(check, gallery.types) if each.low is not None), None)


def judged_text(facts: Facts, columns: tuple[str, ...]) -> tuple[str, str]:
    """Return (kind, text) of the text that a rule on these columns compares with the picture; '' if it has none.

    ``facts`` are of `explain_image`.
    """
    kind = next((_TEXTS[name] for name in columns if name in _TEXTS), "sentence")
    if kind == "alt text":
        return kind, facts["origin"]["alt_text"] or ""
    if kind == "sentence":
        ranked = sorted(facts["matches"], key=lambda row: row["place"] or 9)
        return kind, next((row["given"] or row["text"] for row in ranked), "")
    made = [row for row in facts["texts"] if row["kind"] == kind and row["current"]]
    chosen = [row for row in made if row.get("chosen", True)]
    return kind, next((row["text"] or "" for row in chosen), "")


def pair_texts(lake: Lake, dataset: Dataset, columns: tuple[str, ...]) -> dict[str, str]:
    """Return by image id, for the version's pairs, the text that `judged_text` finds; one query, no explanation."""
    kind = next((_TEXTS[name] for name in columns if name in _TEXTS), "sentence")
    column = {"alt text": "alt_text", "caption": "caption", "synthetic": "syn_text"}.get(kind, "text1")
    sql = f"SELECT image_id, {column} FROM pairs WHERE dataset = ? AND version = ? AND {column} IS NOT NULL"
    return dict(lake.query(sql, (dataset.name, dataset.version)))


def _frame(quantity: str, rule: str, threshold: float) -> str:
    """Return SQL for the frame. NULL is below every threshold."""
    return f"dropped_by IN ('', {quoted(rule)}) AND CAST({quantity} AS DOUBLE) >= {threshold!r}::DOUBLE"


Line = TypeVar("Line", DrawnSample, Judgement)


@dataclass(frozen=True)
class JudgedSample:
    """A sample, and the judgement that counts of each image and judge, in the order of the sample."""

    sample: DrawnSample
    judgements: tuple[Judgement, ...]

    @property
    def verdicts(self) -> Counter[str]:
        """The number of judgements by verdict."""
        return Counter(each.verdict for each in self.judgements)


def judged_samples(lake: Lake) -> tuple[JudgedSample, ...]:
    """Return every sample with its judgements, the newest sample first; registered or not makes no difference."""
    logged = read_log(lake)
    samples = {each.sample_id: each for each in (*_registered(lake, DrawnSample), *logged.samples)}
    every = {each.judgement_id: each for each in (*_registered(lake, Judgement), *logged.judgements)}
    newest: dict[tuple[str, str, str], Judgement] = {}
    for each in sorted(every.values(), key=lambda each: (each.at, each.judgement_id)):
        newest[each.sample_id, each.image_id, each.judge] = each
    found = sorted(samples.values(), key=lambda each: (each.at, each.sample_id), reverse=True)
    return tuple(JudgedSample(sample, _counting(sample, newest)) for sample in found)


def _counting(sample: DrawnSample, newest: dict[tuple[str, str, str], Judgement]) -> tuple[Judgement, ...]:
    own = (each for each in newest.values() if each.sample_id == sample.sample_id and each.verdict != "undone")
    return tuple(sorted(own, key=lambda each: (each.position, each.judge)))


def _registered(lake: Lake, kind: type[Line]) -> list[Line]:
    """Read the registered rows of ``kind``."""
    table = "judgement_samples" if kind is DrawnSample else "judgements"
    columns = ", ".join(f'"{name}"' for name in kind.model_fields if name != "line")
    return [kind.model_validate(row) for row in lake.rows(f"SELECT {columns} FROM {table}")]
