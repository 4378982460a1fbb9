"""Read the proofs of dataset versions: what linear heads learn from a version, from the raw pool and from controls."""

from dataclasses import dataclass
from datetime import datetime

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset


@dataclass(frozen=True)
class ProofLine:
    """Result of one training set (an arm of a proof) on one held-out set.

    Attributes:
        arm: 'raw', 'random' (as many raw pairs as the version has), the version, or 'oracle' (the right pairs).
        pairs: Pairs of the arm.
        kinds: Kinds of pictures of which it has any.
        held_out: 'unseen' (kinds that no arm trains on), 'kept' or 'dropped' (kinds of which the version keeps at least
            its overall share, or less).
        recall: Mean R@5 over seeds, both directions, 0 to 1; None if the set is too small.
        difference: Mean difference to raw.
        half: Half of its 95 % t-interval.
        detectable: The smallest difference that would be seen with a chance of 80 %, known before the version is tried.
        verdict: 'better', 'worse', 'too few to tell'; '' for raw.
    """

    arm: str
    pairs: int
    kinds: int
    held_out: str
    recall: float | None
    difference: float | None = None
    half: float | None = None
    detectable: float | None = None
    verdict: str = ""


@dataclass(frozen=True)
class Proof:
    """Comparison of a version with the raw pool by the judge's towers.

    Attributes:
        dataset: The version.
        judge: The model's spec.
        seeds: Paired trainings of each arm.
        pool: Pairs of the raw pool.
        kinds: Clusters of the judge's vectors of these pictures.
        at: When it was made.
        lines: Arms and held-out sets.
    """

    dataset: str
    judge: str
    seeds: int
    pool: int
    kinds: int
    at: datetime
    lines: tuple[ProofLine, ...]


def proofs(lake: Lake, dataset: Dataset) -> list[Proof]:
    """Return the newest proof of a version by each judge, newest first; [] without one."""
    sql = f"""SELECT judge, seeds, pool, of_kinds, "at", arm, pairs, kinds, held_out, recall, difference, half,
        detectable, verdict FROM proofs WHERE {dataset.where} QUALIFY "at" = max("at") OVER (PARTITION BY judge)
        ORDER BY "at" DESC, judge, line"""
    found: dict[tuple[str, int, int, int, datetime], list[ProofLine]] = {}
    for judge, seeds, pool, kinds, at, *line in lake.query(sql) if "proofs" in lake.tables else ():
        found.setdefault((judge, seeds, pool, kinds, at), []).append(ProofLine(*line))
    return [Proof(str(dataset), *head, tuple(lines)) for head, lines in found.items()]
