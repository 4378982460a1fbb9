"""Read a rule whose number is set by the share that it is to drop: what it compares, and which tail falls.

Such a rule is one comparison with ``{threshold}`` by >= or <=, so that the item at the threshold passes: a threshold
that is one of the values then never drops more than it was asked to, however many items share that value.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from pairmill.catalog.recipe import predicate
from pairmill.catalog.terms.error import BadPredicate

THRESHOLD = "{threshold}"
EXAMPLE = "corpus_entropy >= {threshold}"
_KEEPS_HIGH = {"COMPARE_GREATERTHANOREQUALTO": True, "COMPARE_LESSTHANOREQUALTO": False}
_STRICT = {"COMPARE_GREATERTHAN", "COMPARE_LESSTHAN"}
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*")


@dataclass(frozen=True)
class Compared:
    """``expression`` is SQL over score columns; with ``keeps_high`` what is below the threshold falls, else above."""

    expression: str
    keeps_high: bool


def filled(keep: str, threshold: float | None) -> str:
    """Put a number into a predicate. NULL while there is none: of items without a value, and there are no others then,
    none passes."""
    number = "CAST(NULL AS DOUBLE)" if threshold is None else f"({threshold!r})" if threshold < 0 else repr(threshold)
    return keep.replace(THRESHOLD, number)


def compared(rule_name: str, keep: str) -> Compared:
    """Return what the predicate compares with its threshold. Raises BadPredicate when it is anything else than one >=
    or <= with the threshold alone on one side, and a score on the other."""
    node = predicate.parsed(rule_name, keep.replace(THRESHOLD, f'"{THRESHOLD}"'))
    if node["class"] != "COMPARISON" or keep.count(THRESHOLD) != 1:
        raise _refused(rule_name, "write what else it asks for as rules of its own")
    if node["type"] in _STRICT:
        raise _refused(rule_name, "an item at the threshold passes: write >= or <=")
    for side, other, turned in (("right", "left", False), ("left", "right", True)):
        if node[side].get("column_names") == [THRESHOLD] and node["type"] in _KEEPS_HIGH:
            expression = predicate.written(node[other])
            if predicate.columns_of(rule_name, expression):
                return Compared(expression, _KEEPS_HIGH[node["type"]] is not turned)
    raise _refused(rule_name, "put {threshold} alone on one side and a score on the other")


def check_number(rule_name: str, keep: str, known: Mapping[str, str]) -> None:
    """Raise BadPredicate when what is compared, over columns ``known`` (name -> SQL type), is no number."""
    expression = compared(rule_name, keep).expression
    kind = predicate.type_of(rule_name, expression, known)
    if not _NUMBER.fullmatch(kind):
        raise _refused(rule_name, f"it compares a {kind}, of which no share can be taken: compare a number")


def _refused(rule_name: str, remedy: str) -> BadPredicate:
    return BadPredicate(
        f"rule '{rule_name}': `calibrate` sets the number of one comparison, such as `{EXAMPLE}`; {remedy}."
    )
