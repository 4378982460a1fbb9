"""Count what each rule of a version fails in all, alone, and together with each other rule.

`decisions.dropped_by` names the first rule that an image fails; `decisions.failed` holds all of them as bits. An early
rule has a bit wherever its scores exist, even behind a rule that has dropped the image. Duplicates, missing texts,
rules on generated texts and the cap are decided only for what is left, so they have a bit only where they dropped it.
"""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset


@dataclass(frozen=True)
class RuleFailures:
    """Count the images that fail one step of the funnel.

    Attributes:
        rule: The step's name in the funnel.
        first: Images that the step dropped, as the funnel counts them.
        failed: Images that fail it, whether or not an earlier step dropped them.
        alone: Images that fail it and nothing else. They would reach the later steps without it.
        shared: Rule -> images that fail both, for each other rule.
    """

    rule: str
    first: int
    failed: int
    alone: int
    shared: dict[str, int]


def failed_rules(lake: Lake, dataset: Dataset) -> list[RuleFailures]:
    """Return the failures of each image step of a version in funnel order.

    One GROUP BY over the version's decisions, which yields at most some hundred distinct sets of rules.
    """
    key = (dataset.name, dataset.version)
    of_images = "dataset = ? AND version = ? AND kind = 'image'"
    sets = lake.query(f"SELECT failed, count(*) FROM decisions WHERE {of_images} GROUP BY failed", key)
    steps = lake.query(f"SELECT position, rule, n_dropped FROM funnel WHERE {of_images} ORDER BY position", key)
    return [
        RuleFailures(
            rule,
            n_dropped,
            _count(sets, 1 << place),
            sum(n for bits, n in sets if bits == 1 << place),
            {other: _count(sets, 1 << place | 1 << at) for at, other, _ in steps if at != place},
        )
        for place, rule, n_dropped in steps
    ]


def _count(sets: list[tuple], wanted: int) -> int:
    """Count the images whose bits include ``wanted``."""
    return sum(n for bits, n in sets if bits & wanted == wanted)
