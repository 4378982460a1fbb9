"""Read the proofs of dataset versions: what linear heads learn from a version, from the raw pool and from controls."""

from dataclasses import dataclass
from datetime import datetime

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset


@dataclass(frozen=True)
class ProofLine:
    """Result of one training set (an arm of a proof) on one held-out set."""

    arm: str  # 'raw', 'random' (as many raw pairs as the version has), the version, or 'oracle' (the right pairs)
    pairs: int  # pairs of the arm
    kinds: int  # kinds of pictures of which it has any
    # 'unseen' (kinds that no arm trains on), 'kept' or 'dropped' (kinds of which the version keeps at least its overall
    # share, or less)
    held_out: str
    recall: float | None  # mean R@5 over seeds, both directions, 0 to 1; None if the set is too small
    difference: float | None = None  # mean difference to raw
    half: float | None = None  # half of its 95 % t-interval
    # the smallest difference that would be seen with a chance of 80 %, known before the version is tried
    detectable: float | None = None
    verdict: str = ""  # 'better', 'worse', 'too few to tell'; '' for raw


@dataclass(frozen=True)
class Proof:
    """Comparison of a version with the raw pool by the judge's towers."""

    dataset: str  # the version
    judge: str  # the model's spec
    seeds: int  # paired trainings of each arm
    pool: int  # pairs of the raw pool
    kinds: int  # clusters of the judge's vectors of these pictures
    at: datetime  # when it was made
    lines: tuple[ProofLine, ...]  # arms and held-out sets


def proofs(lake: Lake, dataset: Dataset) -> list[Proof]:
    """Return the newest proof of a version by each judge, newest first; [] without one."""
    sql = f"""SELECT judge, seeds, pool, of_kinds, "at", arm, pairs, kinds, held_out, recall, difference, half,
        detectable, verdict FROM proofs WHERE {dataset.where} QUALIFY "at" = max("at") OVER (PARTITION BY judge)
        ORDER BY "at" DESC, judge, line"""
    found: dict[tuple[str, int, int, int, datetime], list[ProofLine]] = {}
    for judge, seeds, pool, kinds, at, *line in lake.query(sql) if "proofs" in lake.tables else ():
        found.setdefault((judge, seeds, pool, kinds, at), []).append(ProofLine(*line))
    return [Proof(str(dataset), *head, tuple(lines)) for head, lines in found.items()]
