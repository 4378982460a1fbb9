"""Load a pipeline of spaCy and run it; the half of ops.models.language.dependency_parser that imports spaCy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import spacy
from spacy.attrs import DEP, HEAD, IS_SPACE, LOWER, TAG
from spacy.language import Language
from spacy.tokens import Doc

from pairmill.ops.models.language.attribute_rules import AttributeRules, State, Unsupported, compile_rules
from pairmill.ops.models.language.word import Word
from pairmill.ops.models.model_digest import ModelError, resolve

# They cost two thirds of the time and add nothing that is read.
UNUSED = ["ner", "lemmatizer", "senter"]
# Labels of the ClearNLP scheme that Universal Dependencies and the schemes of other languages lack.
LABELS = {"dobj", "pobj", "nsubjpass", "relcl"}
RULER = "attribute_ruler"
# Components that neither read nor write what the ruler writes, but for the tagger's tag and the parser's label.
BEFORE_RULER = {"tok2vec", "transformer", "curated_transformer", "tagger", "parser"}


def parse(spec: str, batch_size: int, texts: list[str]) -> Iterator[list[Word]]:
    """Yield the words of each text, in order. Raises ModelError when the pipeline does not load or is not English.

    The ruler is replaced by its compiled rules, with equal values, where these can be had.
    """
    pipeline, rules = load(spec), rules_of(spec)
    disabled = [] if rules is None else [RULER]
    with pipeline.memory_zone():  # else every new word stays in the process's vocabulary
        for document in pipeline.pipe(texts, batch_size=batch_size, disable=disabled):
            yield _words(document) if rules is None else _words_by_rules(document, rules)


def _words(document: Doc) -> list[Word]:
    return [Word(word.pos_, word.tag_, word.dep_, word.head.i, word.text) for word in document]


def _words_by_rules(document: Doc, rules: _Rules) -> list[Word]:
    columns = document.to_array([TAG, DEP, LOWER, IS_SPACE, HEAD])
    heads = (columns[:, 4].astype(np.int64) + np.arange(len(columns))).tolist()  # stored as distances
    found = rules.compiled([rules.state(*row) for row in columns[:, :4].tolist()])
    return [
        Word(pos, tag, dep, head, word.text) for (pos, tag, dep), head, word in zip(found, heads, document, strict=True)
    ]


class _Rules:
    """Compiled rules with the states of the tokens that a process met, by the numbers that spaCy has for texts."""

    def __init__(self, pipeline: Language, compiled: AttributeRules) -> None:
        self.strings, self.compiled = pipeline.vocab.strings, compiled
        self.words = {self.strings[word]: word for word in compiled.words}
        self.states: dict[tuple[int, int, str | None, int], State] = {}

    def state(self, tag: int, dep: int, lower: int, is_space: int) -> State:
        key = (tag, dep, self.words.get(lower), is_space)
        if key not in self.states:
            self.states[key] = State(self.strings[tag], self.strings[dep], key[2], bool(is_space))
        return self.states[key]


@cache
def rules_of(spec: str) -> _Rules | None:
    """Compile the pipeline's ruler; None where it must run itself: it is not the last component, or stands beside one
    that it may depend on, or has rules that are not compiled."""
    pipeline = load(spec)
    kinds = [pipeline.get_pipe_meta(name).factory for name in pipeline.pipe_names]
    if pipeline.pipe_names[-1:] != [RULER] or kinds[-1:] != [RULER] or not BEFORE_RULER.issuperset(kinds[:-1]):
        return None
    try:
        return _Rules(pipeline, compile_rules(pipeline.get_pipe(RULER).patterns))  # pyright: ignore[reportAttributeAccessIssue]
    except Unsupported:
        return None


@cache
def load(spec: str) -> Language:
    """Load the pipeline's tagger and parser. Raises ModelError when that fails, or when its labels are other ones."""
    try:
        pipeline = spacy.load(resolve(spec), exclude=UNUSED)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise ModelError(
            f"model '{spec}': spaCy {spacy.__version__} cannot load it ({reason}); install the pipeline of this "
            "version of spaCy, or correct the spec"
        ) from error
    labels = pipeline.pipe_labels.get("parser", [])
    if pipeline.lang != "en" or not LABELS.issubset(labels):
        raise ModelError(
            f"model '{spec}': its language is '{pipeline.lang}' and its parser has {len(labels)} labels, not those of "
            "spaCy's English pipelines, by which a sentence's structure is defined; name one of these, such as "
            "'spacy:en_core_web_sm'"
        )
    return pipeline
