"""Compile the attribute ruler of a spaCy pipeline into a lookup of part of speech, tag and label by token.

spaCy matches each rule of the ruler (179 in `en_core_web_sm`) against each token, which takes a fifth of a parse. 131
of these rules write attributes that are read here. They read four attributes of a token and name 103 words, so tokens
fall into few distinct states: 1,172 states for the 317,000 words of 23,537 sentences. Each state is resolved once per
process.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

WRITTEN = ("POS", "TAG", "DEP")
# Rules may also write these attributes. Neither a later match nor any caller reads them.
UNREAD = {"MORPH", "LEMMA"}


class State(NamedTuple):
    """The attributes of a token that rules read, before any rule applies.

    ``lower`` is None for words that no rule names.
    """

    tag: str
    dep: str
    lower: str | None
    is_space: bool


class Attributes(NamedTuple):
    """The attributes of a token after all rules are applied."""

    pos: str
    tag: str
    dep: str


class Test(NamedTuple):
    """Test whether the token's ``field`` is one of ``values``; if ``among`` is False, whether it is none of them."""

    field: str
    values: frozenset[str | bool]
    among: bool

    def holds(self, state: State) -> bool:
        """Return whether a token in this state passes the test."""
        return (getattr(state, self.field) in self.values) is self.among


class AttributeRule(NamedTuple):
    """A rule that writes the attributes ``sets`` to a token if all ``tests`` hold.

    ``tests`` maps a distance from that token (0: the token itself, -1: the token before) to the tests at that distance.
    """

    tests: Mapping[int, tuple[Test, ...]]
    sets: Mapping[str, str]

    def fits(self, state: State) -> bool:
        """Return whether the tests at distance 0, those of the token itself, hold."""
        return all(test.holds(state) for test in self.tests[0])

    def matches(self, states: list[State], at: int) -> bool:
        """Return whether the tests at all distances hold for the token at index ``at``.

        A rule does not match if a distance points outside the document.
        """
        return all(
            0 <= at + distance < len(states) and all(test.holds(states[at + distance]) for test in tests)
            for distance, tests in self.tests.items()
        )


class Unsupported(Exception):
    """Raised when a rule uses a feature of spaCy's matcher that `compile_rules` does not support."""


@dataclass(frozen=True)
class AttributeRules:
    """Apply ``rules`` to the tokens of a document.

    As in spaCy, all rules match the attributes from before any rule wrote, and a later rule overwrites an earlier one.
    ``fitting`` and ``alone`` cache results per token state.
    """

    rules: tuple[AttributeRule, ...]
    fitting: dict[State, tuple[AttributeRule, ...]] = field(default_factory=dict)
    alone: dict[State, Attributes | None] = field(default_factory=dict)

    @property
    def words(self) -> set[str]:
        """The lower-case words that the rules' tests name."""
        tests = (test for rule in self.rules for tests in rule.tests.values() for test in tests)
        return {str(value) for test in tests if test.field == "lower" for value in test.values}

    def __call__(self, states: list[State]) -> list[Attributes]:
        """Return the attributes of each token, in order."""
        return [self._alone(state) or self._beside(states, at) for at, state in enumerate(states)]

    def _alone(self, state: State) -> Attributes | None:
        """Return the cached attributes of a token in ``state``, or None if they depend on neighbouring tokens."""
        if state not in self.alone:
            rules = self.fitting[state] = tuple(rule for rule in self.rules if rule.fits(state))
            self.alone[state] = None if any(len(rule.tests) > 1 for rule in rules) else _apply_writes(state, rules)
        return self.alone[state]

    def _beside(self, states: list[State], at: int) -> Attributes:
        """Return the attributes of the token at index ``at``, matching its neighbours as well."""
        return _apply_writes(states[at], (rule for rule in self.fitting[states[at]] if rule.matches(states, at)))


class Word(NamedTuple):
    """A token of a parse: Universal ``pos``, Penn ``tag``, ClearNLP ``label``, and the index ``head`` of its head.

    A root is its own head.
    """

    pos: str
    tag: str
    label: str
    head: int
    text: str


def _apply_writes(state: State, rules: Iterable[AttributeRule]) -> Attributes:
    """Apply the writes of ``rules`` in order to a token in ``state``."""
    found = {"POS": "", "TAG": state.tag, "DEP": state.dep}
    for rule in rules:
        found |= rule.sets
    return Attributes(found["POS"], found["TAG"], found["DEP"])


def compile_rules(patterns: Iterable[Mapping[str, Any]]) -> AttributeRules:
    """Compile the ``patterns`` of spaCy's attribute ruler into rules, in the ruler's order.

    Raises Unsupported if a rule that writes POS, TAG or DEP reads another attribute than TAG, DEP, LOWER and IS_SPACE,
    or uses another operator than equality, IN and NOT_IN; or if any rule writes an attribute that could change how
    later texts are parsed.
    """
    rules: list[AttributeRule] = []
    for each in patterns:
        sets = each["attrs"]
        if not sets.keys() <= {*WRITTEN, *UNREAD} or not all(isinstance(value, str) for value in sets.values()):
            raise Unsupported(f"a rule writes {sorted(map(str, sets))}")
        sets = {name: value for name, value in sets.items() if name in WRITTEN}
        if sets:
            rules += [_rule(pattern, each["index"], sets) for pattern in each["patterns"]]
    return AttributeRules(tuple(rules))


def _rule(pattern: list[dict[str, Any]], index: int, sets: dict[str, str]) -> AttributeRule:
    """Compile one pattern. Raises Unsupported if ``index`` lies outside the pattern."""
    target = index if index >= 0 else len(pattern) + index
    if not 0 <= target < len(pattern):
        raise Unsupported(f"index {index} of a pattern of {len(pattern)} tokens")
    return AttributeRule({at - target: tuple(_tests(token)) for at, token in enumerate(pattern)}, sets)


def _tests(token: dict[str, Any]) -> Iterable[Test]:
    """Yield the tests of one token of a pattern. Raises Unsupported for an attribute that is not compiled."""
    for name, value in token.items():
        if name == "IS_SPACE" and isinstance(value, bool):
            yield Test("is_space", frozenset([value]), among=True)
        elif name in ("TAG", "DEP", "LOWER"):
            yield from _of_text(name.lower(), {"IN": [value]} if isinstance(value, str) else value)
        else:
            raise Unsupported(f"a rule reads {name}={value!r}")


def _of_text(name: str, asked: Any) -> Iterable[Test]:
    """Yield the tests of one text attribute, whose operators must be IN and NOT_IN."""
    known = isinstance(asked, dict) and asked.keys() <= {"IN", "NOT_IN"}
    if not known or not all(isinstance(value, str) for values in asked.values() for value in values):
        raise Unsupported(f"a rule reads {name}={asked!r}")
    for operator, values in asked.items():
        yield Test(name, frozenset(values), among=operator == "IN")
