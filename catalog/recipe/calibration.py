"""Parse calibrated rules: rules whose threshold is set by the share of items to drop.

A calibrated rule is one comparison of a score with ``{threshold}`` by >= or <=, so an item at the threshold passes. A
threshold that equals one of the values therefore never drops more than the requested share, however many items have
that value.
"""

from dataclasses import dataclass

from pairmill.catalog.recipe import predicate
from pairmill.catalog.terms.error import BadPredicate

THRESHOLD = "{threshold}"
EXAMPLE = "corpus_entropy >= {threshold}"
_KEEPS_HIGH = {"COMPARE_GREATERTHANOREQUALTO": True, "COMPARE_LESSTHANOREQUALTO": False}
_STRICT = {"COMPARE_GREATERTHAN", "COMPARE_LESSTHAN"}


@dataclass(frozen=True)
class Compared:
    """The score side of a calibrated comparison: ``expression`` is SQL over score columns.

    With ``keeps_high``, items below the threshold are dropped; otherwise items above the threshold.
    """

    expression: str
    keeps_high: bool


def filled(keep: str, threshold: float | None) -> str:
    """Substitute a threshold for ``{threshold}`` in a predicate; None becomes NULL, which no item passes.

    A calibrated rule lacks a threshold only if no item has a value to calibrate on.
    """
    number = "CAST(NULL AS DOUBLE)" if threshold is None else f"({threshold!r})" if threshold < 0 else repr(threshold)
    return keep.replace(THRESHOLD, number)


def compared(rule_name: str, keep: str) -> Compared:
    """Return the expression that a predicate compares with its threshold.

    Raises:
        BadPredicate: The predicate is not one >= or <= with the threshold alone on one side and a score on the other.
    """
    node = predicate.parsed(rule_name, keep.replace(THRESHOLD, f'"{THRESHOLD}"'))
    if node["class"] != "COMPARISON" or keep.count(THRESHOLD) != 1:
        remedy = "write what else it asks for as rules of its own"
    elif node["type"] in _STRICT:
        remedy = "an item at the threshold passes: write >= or <="
    else:
        remedy = "put {threshold} alone on one side and a score on the other"
        for side, other, turned in (("right", "left", False), ("left", "right", True)):
            if node[side].get("column_names") == [THRESHOLD] and node["type"] in _KEEPS_HIGH:
                expression = predicate.written(node[other])
                if predicate.columns_of(rule_name, expression):
                    return Compared(expression, _KEEPS_HIGH[node["type"]] is not turned)
    raise BadPredicate(
        f"rule '{rule_name}': `calibrate` sets the number of one comparison, such as `{EXAMPLE}`; {remedy}."
    )
