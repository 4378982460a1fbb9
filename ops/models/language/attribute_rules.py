"""Compile the attribute ruler of a spaCy pipeline into a look-up of part of speech, tag and label by token.

The ruler matches each of its rules (179 in `en_core_web_sm`) against each token: a fifth of the time of a parse. Those
that write what is read here (131) read four attributes of a token and name 103 words, so that the 317,000 words of
23,537 sentences were 1,172 states, each resolved once a process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WRITTEN = ("POS", "TAG", "DEP")
# A pipeline's rules may write these too; they change no later match, and nobody reads them.
UNREAD = {"MORPH", "LEMMA"}


class State(NamedTuple):
    """What rules read of a token before any rule is applied. ``lower`` is None for words that no rule names."""

    tag: str
    dep: str
    lower: str | None
    is_space: bool


class Attributes(NamedTuple):
    """What the rules leave a token with."""

    pos: str
    tag: str
    dep: str


class Test(NamedTuple):
    """Hold if the token's ``field`` is one of ``values``, or with ``among`` False if it is none of them."""

    field: str
    values: frozenset[str | bool]
    among: bool

    def holds(self, state: State) -> bool:
        return (getattr(state, self.field) in self.values) is self.among


class Rule(NamedTuple):
    """Write ``sets`` to a token if all ``tests`` hold, by distance from that token (0: itself, -1: the one before)."""

    tests: Mapping[int, tuple[Test, ...]]
    sets: Mapping[str, str]

    def fits(self, state: State) -> bool:
        """Tell whether the tests of the token itself hold."""
        return all(test.holds(state) for test in self.tests[0])

    def matches(self, states: list[State], at: int) -> bool:
        """Tell whether the tests of all tokens hold."""
        return all(
            0 <= at + distance < len(states) and all(test.holds(states[at + distance]) for test in tests)
            for distance, tests in self.tests.items()
        )


class Unsupported(Exception):
    """A rule uses more of spaCy's matcher than is compiled here."""


@dataclass(frozen=True)
class AttributeRules:
    """Apply ``rules`` to the tokens of a document. As in spaCy, all rules match what was there before any of them
    wrote, and a later rule overwrites an earlier one."""

    rules: tuple[Rule, ...]
    fitting: dict[State, tuple[Rule, ...]] = field(default_factory=dict)
    alone: dict[State, Attributes | None] = field(default_factory=dict)

    @property
    def words(self) -> set[str]:
        """The words that rules name."""
        tests = (test for rule in self.rules for tests in rule.tests.values() for test in tests)
        return {str(value) for test in tests if test.field == "lower" for value in test.values}

    def __call__(self, states: list[State]) -> list[Attributes]:
        """Return the attributes of each token."""
        return [self._alone(state) or self._beside(states, at) for at, state in enumerate(states)]

    def _alone(self, state: State) -> Attributes | None:
        """Return the attributes of a token in ``state``; None if they depend on the tokens beside it."""
        if state not in self.alone:
            rules = self.fitting[state] = tuple(rule for rule in self.rules if rule.fits(state))
            self.alone[state] = None if any(len(rule.tests) > 1 for rule in rules) else _written(state, rules)
        return self.alone[state]

    def _beside(self, states: list[State], at: int) -> Attributes:
        return _written(states[at], (rule for rule in self.fitting[states[at]] if rule.matches(states, at)))


def _written(state: State, rules: Iterable[Rule]) -> Attributes:
    found = {"POS": "", "TAG": state.tag, "DEP": state.dep}
    for rule in rules:
        found |= rule.sets
    return Attributes(found["POS"], found["TAG"], found["DEP"])


def compile_rules(patterns: Iterable[Mapping[str, Any]]) -> AttributeRules:
    """Compile the ``patterns`` of an attribute ruler, in its order.

    Raises Unsupported if a rule that writes POS, TAG or DEP reads other attributes than TAG, DEP, LOWER and IS_SPACE,
    or reads them by more than equality, IN and NOT_IN; or if any rule writes an attribute that could change how later
    texts are parsed.
    """
    rules: list[Rule] = []
    for each in patterns:
        sets = each["attrs"]
        if not sets.keys() <= {*WRITTEN, *UNREAD} or not all(isinstance(value, str) for value in sets.values()):
            raise Unsupported(f"a rule writes {sorted(map(str, sets))}")
        sets = {name: value for name, value in sets.items() if name in WRITTEN}
        if sets:
            rules += [_rule(pattern, each["index"], sets) for pattern in each["patterns"]]
    return AttributeRules(tuple(rules))


def _rule(pattern: list[dict[str, Any]], index: int, sets: dict[str, str]) -> Rule:
    target = index if index >= 0 else len(pattern) + index
    if not 0 <= target < len(pattern):
        raise Unsupported(f"index {index} of a pattern of {len(pattern)} tokens")
    return Rule({at - target: tuple(_tests(token)) for at, token in enumerate(pattern)}, sets)


def _tests(token: dict[str, Any]) -> Iterable[Test]:
    for name, value in token.items():
        if name == "IS_SPACE" and isinstance(value, bool):
            yield Test("is_space", frozenset([value]), among=True)
        elif name in ("TAG", "DEP", "LOWER"):
            yield from _of_text(name.lower(), {"IN": [value]} if isinstance(value, str) else value)
        else:
            raise Unsupported(f"a rule reads {name}={value!r}")


def _of_text(name: str, asked: Any) -> Iterable[Test]:
    known = isinstance(asked, dict) and asked.keys() <= {"IN", "NOT_IN"}
    if not known or not all(isinstance(value, str) for values in asked.values() for value in values):
        raise Unsupported(f"a rule reads {name}={asked!r}")
    for operator, values in asked.items():
        yield Test(name, frozenset(values), among=operator == "IN")
