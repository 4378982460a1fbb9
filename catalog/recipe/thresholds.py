"""Extract the thresholds of a rule, to draw them over a histogram of the values, and parse calibrated rules.

A rule's predicate is free SQL. Only plain comparisons with a constant, BETWEEN, and ANDs of these have a threshold on a
number line. For any other rule, the numeric columns are shown without one.

The threshold of a calibrated rule is set by the share of items to drop. The rule is one comparison of a score with
``{threshold}`` by >= or <=, so an item at the threshold passes, and a threshold that equals one of the values never
drops more than the requested share, however many items have that value.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import isinf
from typing import Any

from pairmill.catalog.recipe.predicate import columns_of, constant, parse, to_sql
from pairmill.catalog.terms.error import BadPredicate

_LOW = {"COMPARE_GREATERTHAN", "COMPARE_GREATERTHANOREQUALTO"}
_HIGH = {"COMPARE_LESSTHAN", "COMPARE_LESSTHANOREQUALTO"}
NUMBERS = {"INTEGER", "BIGINT", "DOUBLE"}


@dataclass(frozen=True)
class Quantity:
    """A numeric expression that a rule compares, and the range of values that pass.

    Values from ``low`` to ``high`` pass; None means unbounded. With ``strict_low``, ``strict_high`` the threshold
    itself does not pass. ``columns`` are the score columns that the expression reads. ``rule``: '' if none reads it.

    The expression is ``over``, or the ratio ``over / under``.
    """

    over: str
    columns: tuple[str, ...]
    rule: str = ""
    low: float | None = None
    high: float | None = None
    strict_low: bool = False
    strict_high: bool = False
    under: str = ""

    @property
    def sql(self) -> str:
        """The expression as SQL; NULL where the divisor is 0."""
        return f"{self.over} / nullif({self.under}, 0)" if self.under else self.over

    @property
    def label(self) -> str:
        """The expression as displayed to users."""
        return f"{self.over} / {self.under}" if self.under else self.over


def refuse_empty(rule: str, keep: str) -> None:
    """Raise BadPredicate for a rule that no value can pass, such as `width between 5 and 3`."""
    if "and" not in keep.lower():
        return
    for each in bounds(rule, keep).values():
        if each.low is None or each.high is None or each.low < each.high:
            continue
        if each.low > each.high or each.strict_low or each.strict_high:
            raise BadPredicate(
                f"rule '{rule}': no value of {each.label} passes, which is to be above {each.low:g} and below "
                f"{each.high:g}; swap the two, or write `or` where either is enough."
            )


def bounds(rule: str, keep: str) -> dict[str, Quantity]:
    """Return SQL of each quantity -> its bounds, from the AND-joined comparisons of a rule; {} without any."""
    found: dict[str, Quantity] = {}
    for node in _conjuncts(parse(rule, keep)):
        if (bound := _bound(node, rule)) is not None:
            found[bound.sql] = _both(found[bound.sql], bound) if bound.sql in found else bound
    return found


def _both(first: Quantity, second: Quantity) -> Quantity:
    """Intersect two bounds of one quantity (`a > 1 AND a < 5`); on the same side the tighter bound wins."""
    both = (first, second)
    low = max((q for q in both if q.low is not None), key=lambda q: (q.low, q.strict_low), default=first)
    high = min((q for q in both if q.high is not None), key=lambda q: (q.high, not q.strict_high), default=first)
    strict = {"strict_low": low.strict_low, "strict_high": high.strict_high}
    return replace(first, low=low.low, high=high.high, **strict)


def _conjuncts(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the parts of a predicate that are joined by AND."""
    if node["type"] == "CONJUNCTION_AND":
        for child in node["children"]:
            yield from _conjuncts(child)
    else:
        yield node


def _bound(node: dict[str, Any], rule: str) -> Quantity | None:
    """Convert a comparison with a number to a Quantity; None for any other node."""
    if node["type"] == "COMPARE_BETWEEN":
        low, high = _number(node["lower"]), _number(node["upper"])
        if low is None or high is None or not _columns(node["input"]):
            return None
        return Quantity(to_sql(node["input"]), _columns(node["input"]), rule, low, high)
    if node["type"] not in _LOW | _HIGH:
        return None
    is_low, strict = node["type"] in _LOW, "OREQUALTO" not in node["type"]
    for left, right, low in ((node["left"], node["right"], is_low), (node["right"], node["left"], not is_low)):
        under, value = _against(right)
        if value is not None and _columns(left):
            columns = tuple(sorted({*_columns(left), *_columns(right)}))
            sides = {"low": value, "strict_low": strict} if low else {"high": value, "strict_high": strict}
            return Quantity(to_sql(left), columns, rule, under=under, **sides)
    return None


def _against(right: dict[str, Any]) -> tuple[str, float | None]:
    """Return (divisor, number) of a comparison's right side, for b > 0: `a <= 3 * b` is drawn as `a / b` against 3."""
    if not _columns(right):
        return "", _number(right)
    if right["class"] == "FUNCTION" and right["function_name"] == "*":
        for factor, other in (right["children"], right["children"][::-1]):
            if not _columns(factor):
                return to_sql(other), _number(factor)
    return "", None


def _columns(node: Any) -> tuple[str, ...]:
    """Return the sorted distinct names of the columns below ``node``, in lower case."""
    if isinstance(node, list):
        return tuple(sorted({name for child in node for name in _columns(child)}))
    if not isinstance(node, dict):
        return ()
    if node.get("class") == "COLUMN_REF":
        return (node["column_names"][-1].lower(),)
    return _columns(list(node.values()))


def _number(node: dict[str, Any]) -> float | None:
    """Evaluate an expression without columns; None if it has columns, is not a number, or is infinite."""
    value = None if _columns(node) else constant(node)
    return None if value is None or isinf(value) else value


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


def insert_threshold(rule_name: str, keep: str, threshold: float | None, passes_all: bool = False) -> str:
    """Return predicate ``keep`` with the threshold for ``{threshold}``.

    None becomes NULL, which no item passes, or with ``passes_all`` the infinite number that every value passes. A
    calibrated rule lacks a threshold only if no item has a value to calibrate on, or canaries are too few.
    """
    if threshold is None and passes_all:
        keeps_high = compared_score(rule_name, keep).keeps_high
        return keep.replace(THRESHOLD, f"CAST('{'-' if keeps_high else ''}infinity' AS DOUBLE)")
    number = "CAST(NULL AS DOUBLE)" if threshold is None else f"({threshold!r})" if threshold < 0 else repr(threshold)
    return keep.replace(THRESHOLD, number)


def compared_score(rule_name: str, keep: str) -> Compared:
    """Return the score expression that the predicate of a calibrated rule compares with its threshold.

    Raises BadPredicate unless it is one >= or <= with the threshold alone on one side and a score on the other.
    """
    node = parse(rule_name, keep.replace(THRESHOLD, f'"{THRESHOLD}"'))
    if node["class"] != "COMPARISON" or keep.count(THRESHOLD) != 1:
        remedy = "write what else it asks for as rules of its own"
    elif node["type"] in _STRICT:
        remedy = "an item at the threshold passes: write >= or <="
    else:
        remedy = "put {threshold} alone on one side and a score on the other"
        for side, other, turned in (("right", "left", False), ("left", "right", True)):
            if node[side].get("column_names") == [THRESHOLD] and node["type"] in _KEEPS_HIGH:
                expression = to_sql(node[other])
                if columns_of(rule_name, expression):
                    return Compared(expression, _KEEPS_HIGH[node["type"]] is not turned)
    raise BadPredicate(
        f"rule '{rule_name}': `calibrate` sets the number of one comparison, such as `{EXAMPLE}`; {remedy}."
    )
