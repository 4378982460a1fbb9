"""Draw random samples of a version's images for people to judge, and choose a threshold by their judgements.

Images near a threshold cannot tell how many of all kept images are wrong; a simple random sample can.

Candidates for the threshold are tested from strict to loose, and the first that fails ends the test (learn then test:
Angelopoulos et al., 2021, by fixed-sequence testing). So the chance that the chosen threshold lets through a larger
share of wrong items is at most 1 - confidence, however many candidates there are. This holds if the number of labels
was decided before they were seen.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, TypeVar

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.explain.why import Facts
from pairmill.catalog.queries.figures.canary_rates import labels_needed, upper_bound
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
Line = TypeVar("Line", DrawnSample, Judgement)
EXPECTED = 1.25  # times the labels needed without a wrong one, which a candidate is to expect before it is tested
SHARES = (1.0, 0.85, 0.7, 0.55, 0.4, 0.25)  # of the sample's frame, that the candidates keep unless some are named


@dataclass(frozen=True)
class JudgedSample:
    """A drawn sample, and the newest judgement by each judge of each image, in the order of the sample."""

    sample: DrawnSample
    judgements: tuple[Judgement, ...]

    @property
    def verdicts(self) -> Counter[str]:
        """Verdict -> number of judgements."""
        return Counter(each.verdict for each in self.judgements)


@dataclass(frozen=True)
class Candidate:
    """Outcome of testing one ``threshold`` of a rule. The rule keeps items whose value is at or above it.

    ``population`` and ``labels``: items of the sample's frame, and judged items of the sample, that it keeps.
    ``wrong``: items among ``labels`` that some judge did not call a match; ``bound``: upper bound of their share.
    ``outcome``: 'holds', 'fails', 'untested' (looser than the first threshold that fails), or 'too strict' (the sample
    is too small for it). ``lacking``: further labels, all of them matches, for the bound to be low enough; 0 if it is.
    """

    threshold: float
    population: int
    labels: int
    wrong: int
    bound: float
    outcome: str
    lacking: int


@dataclass(frozen=True)
class JudgedThreshold:
    """Result of testing candidate thresholds, strict to loose: the chosen ``threshold``, None if the strictest fails.

    ``judged``: number of judged items from the sample's first on, without a gap. ``quantity``: SQL of the value that
    ``rule`` compares. ``scorers``: digests, by name, of the models that the threshold is valid for.
    """

    sample_id: str
    rule: str
    quantity: str
    judged: int
    candidates: tuple[Candidate, ...]
    threshold: float | None
    scorers: dict[str, str] = field(default_factory=dict)


def draw_sample(
    gallery: Gallery, dataset: Dataset, check: Check, threshold: float | None, seed: str = ""
) -> DrawnSample:
    """Draw a sample of the images that ``check`` keeps at ``threshold`` (None: its own threshold). Nothing is stored.

    Raises PairmillError if the rule has no lower bound, or keeps no image at the threshold.
    """
    quantity = lower_bound(check, gallery)
    if quantity is None or quantity.low is None:
        raise PairmillError(f"rule '{check.name}' has no lower threshold to sample above; choose another rule.")
    least = quantity.low if threshold is None else threshold
    sample = DrawnSample(
        dataset=dataset.name, version=dataset.version, content_digest=dataset.content_digest, rule=check.name,
        quantity=quantity.sql, threshold=least, population=0, seed=seed or new_id(),
    )  # fmt: skip
    population = gallery.rows(f"SELECT count(*) AS n FROM images WHERE {frame_of(sample)}")[0]["n"]
    if not population:
        raise PairmillError(f"no image of {dataset} has {quantity.label} of at least {least:g}; choose a lower one.")
    return sample.model_copy(update={"population": population})


def images_of(gallery: Gallery, sample: DrawnSample, most: int = MOST_JUDGED) -> list[dict[str, Any]]:
    """Return the first ``most`` images of a sample, in its order, as rows of image_id, sha256, value, dropped_by.

    At 1M images this takes 0.6 s, most of it for the hashes.
    """
    columns = f"image_id, sha256, dropped_by, CAST({sample.quantity} AS DOUBLE) AS value"
    order = f"ORDER BY sha256(image_id || {quoted(sample.seed)}), image_id LIMIT {most}"
    return gallery.rows(f"SELECT {columns} FROM images WHERE {frame_of(sample)} {order}")


def lower_bound(check: Check, gallery: Gallery) -> Quantity | None:
    """Return the quantity that a rule bounds from below; None for a rule without a lower bound."""
    if not set(check.columns) <= gallery.types.keys():
        return None
    return next((each for each in quantities(check, gallery.types) if each.low is not None), None)


def judged_text(facts: Facts, columns: tuple[str, ...]) -> tuple[str, str]:
    """Return (kind, text) of the text that a rule on ``columns`` compares with the picture; text '' if it has none.

    ``facts`` is the result of `explain_image`.
    """
    kind = next((_TEXTS[name] for name in columns if name in _TEXTS), "sentence")
    if kind == "alt text":
        return kind, facts["origin"]["alt_text"] or ""
    if kind == "sentence":
        ranked = sorted(facts["matches"], key=lambda row: row["place"] or 9)
        return kind, next((row["given"] or row["text"] for row in ranked), "")
    made = [row for row in facts["texts"] if row["kind"] == kind and row["current"]]
    return kind, next((row["text"] or "" for row in made if row.get("chosen", True)), "")


def pair_texts(lake: Lake, dataset: Dataset, columns: tuple[str, ...]) -> dict[str, str]:
    """Return image id -> the text of `judged_text`, for all pairs of the version in one query."""
    kind = next((_TEXTS[name] for name in columns if name in _TEXTS), "sentence")
    column = {"alt text": "alt_text", "caption": "caption", "synthetic": "syn_text"}.get(kind, "text1")
    sql = f"SELECT image_id, {column} FROM pairs WHERE dataset = ? AND version = ? AND {column} IS NOT NULL"
    return dict(lake.query(sql, (dataset.name, dataset.version)))


def frame_of(sample: DrawnSample) -> str:
    """Return an SQL condition: is an image in the sample's frame? An image without a value is not."""
    value = f"CAST({sample.quantity} AS DOUBLE)"
    return f"dropped_by IN ('', {quoted(sample.rule)}) AND {value} >= {sample.threshold!r}::DOUBLE"


def judged_samples(lake: Lake) -> tuple[JudgedSample, ...]:
    """Return every sample, registered in the lake or only logged, with its judgements; the newest sample first."""
    logged = read_log(lake)
    samples = {each.sample_id: each for each in (*_read_registered(lake, DrawnSample), *logged.samples)}
    every = {each.judgement_id: each for each in (*_read_registered(lake, Judgement), *logged.judgements)}
    newest: dict[tuple[str, str, str], Judgement] = {}
    for each in sorted(every.values(), key=lambda each: (each.at, each.judgement_id)):
        newest[each.sample_id, each.image_id, each.judge] = each
    counting: dict[str, list[Judgement]] = defaultdict(list)
    for each in sorted(newest.values(), key=lambda each: (each.position, each.judge)):
        if each.verdict != "undone":
            counting[each.sample_id].append(each)
    found = sorted(samples.values(), key=lambda each: (each.at, each.sample_id), reverse=True)
    return tuple(JudgedSample(sample, tuple(counting[sample.sample_id])) for sample in found)


def _read_registered(lake: Lake, kind: type[Line]) -> list[Line]:
    """Read the registered rows of ``kind``."""
    table = "judgement_samples" if kind is DrawnSample else "judgements"
    columns = ", ".join(f'"{name}"' for name in kind.model_fields if name != "line")
    return [kind.model_validate(row) for row in lake.rows(f"SELECT {columns} FROM {table}")]


def fixed_sequence(
    labels: Sequence[tuple[float, bool]], populations: Sequence[tuple[float, int]], share: float, confidence: float
) -> tuple[Candidate, ...]:
    """Test candidate thresholds from strict to loose by labels of a sample; stop at the first that fails.

    A candidate is 'too strict', and not tested, if the sample is expected to have too few labels above it. This depends
    on the sizes of sample and populations alone, not on any label, so the guarantee holds.

    ``labels``: (value, is wrong) of each judged item of a simple random sample above the loosest candidate.
    ``populations``: (threshold, items that it keeps) of each candidate, in any order. ``confidence`` is the chance,
    0 to 1, that the ``share`` of wrong items, 0 to 1, is not exceeded.
    """
    found: list[Candidate] = []
    goes_on, of = True, max((n for _, n in populations), default=0)
    fewest = EXPECTED * labels_needed(0, share, confidence)
    for threshold, population in sorted(populations, reverse=True):
        kept = [is_wrong for value, is_wrong in labels if value >= threshold]
        wrong = sum(kept)
        bound = upper_bound(wrong, len(kept), confidence)
        is_tested = len(labels) * population >= fewest * of
        outcome = "holds" if bound <= share else "fails"
        outcome = outcome if is_tested and goes_on else "untested" if is_tested else "too strict"
        lacking = 0 if bound <= share else labels_needed(wrong, share, confidence) - len(kept)
        found.append(Candidate(threshold, population, len(kept), wrong, bound, outcome, max(lacking, 0)))
        goes_on = goes_on and outcome != "fails"
    return tuple(found)


def judged_threshold(
    gallery: Gallery, judged: JudgedSample, share: float, confidence: float, candidates: Sequence[float] = ()
) -> JudgedThreshold:
    """Choose a rule's threshold by the judgements of a sample: the loosest at which at most ``share`` are wrong.

    A pair is wrong unless every judge called it a match. ``confidence`` (0 to 1) is the chance that the bound holds.
    ``candidates`` are thresholds at or above the sample's; by default those that keep SHARES of its frame, independent
    of labels. Raises PairmillError for a looser one: the sample says nothing about items below its threshold.
    """
    loosest = judged.sample.threshold
    if below := [each for each in candidates if each < loosest]:
        raise PairmillError(
            f"the sample was drawn at {loosest:g} and says nothing about {min(below):g}; draw another from there."
        )
    labels = _labels(judged)
    tested = fixed_sequence(labels, _populations(gallery, judged, candidates), share, confidence)
    holding = [each.threshold for each in tested if each.outcome == "holds"]
    of = judged.sample
    return JudgedThreshold(of.sample_id, of.rule, of.quantity, len(labels), tested, min(holding, default=None))


def sample_of(judged: Sequence[JudgedSample], dataset: Dataset, rule: str) -> JudgedSample | None:
    """Return this version's sample for ``rule`` with the most judged items, the newest of several; None without one."""
    wanted = (dataset.name, dataset.version, dataset.content_digest, rule)
    named = attrgetter("sample.dataset", "sample.version", "sample.content_digest", "sample.rule")
    own = [each for each in judged if named(each) == wanted]
    return max(own, key=lambda each: len(_labels(each)), default=None)


def _labels(judged: JudgedSample) -> list[tuple[float, bool]]:
    """Return (value, is wrong) of the sample's items up to the first gap, beyond which people may have chosen them."""
    by_position: dict[int, list[tuple[float, bool]]] = {}
    for each in judged.judgements:
        by_position.setdefault(each.position, []).append((each.value, each.verdict != "match"))
    labels = []
    while len(labels) in by_position:
        told = by_position[len(labels)]
        labels.append((told[0][0], any(is_wrong for _, is_wrong in told)))
    return labels


def _populations(gallery: Gallery, judged: JudgedSample, candidates: Sequence[float]) -> list[tuple[float, int]]:
    """Return (threshold, items of the frame that it keeps) of each candidate."""
    sample, thresholds = judged.sample, set(candidates)
    value, frame = f"CAST({sample.quantity} AS DOUBLE)", frame_of(sample)
    if not thresholds:
        quantiles = ", ".join(str(1 - each) for each in SHARES)
        row = gallery.rows(f"SELECT quantile_disc({value}, [{quantiles}]) AS q FROM images WHERE {frame}")[0]
        thresholds = {sample.threshold, *(row["q"] or [])[1:]}
    ordered = sorted(thresholds)
    counts = ", ".join(f"count(*) FILTER ({value} >= {each!r}::DOUBLE) AS n{n}" for n, each in enumerate(ordered))
    found = gallery.rows(f"SELECT {counts} FROM images WHERE {frame}")[0]
    return [(each, found[f"n{n}"]) for n, each in enumerate(ordered)]
