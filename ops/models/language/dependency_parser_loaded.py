"""Load a spaCy pipeline and run it; the part of dependency_parser.py that imports spaCy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import spacy
from spacy.attrs import DEP, HEAD, IS_SPACE, LOWER, TAG
from spacy.language import Language
from spacy.tokens import Doc

from pairmill.ops.models.language.attribute_rules import AttributeRules, State, Unsupported, Word, compile_rules
from pairmill.ops.models.model_digest import ModelError, resolve

# These components take two thirds of the time, and nothing reads their output.
UNUSED = ["ner", "lemmatizer", "senter"]
# Labels of the ClearNLP scheme that neither Universal Dependencies nor the schemes of other languages have.
LABELS = {"dobj", "pobj", "nsubjpass", "relcl"}
RULER = "attribute_ruler"
# Components that share no attribute with the ruler, except for the tagger's tag and the parser's label.
BEFORE_RULER = {"tok2vec", "transformer", "curated_transformer", "tagger", "parser"}


def parse(spec: str, batch_size: int, texts: list[str]) -> Iterator[list[Word]]:
    """Yield the words of each text, in input order, by the spaCy pipeline ``spec``.

    The pipeline's attribute ruler is replaced by compiled rules with equal results, if the rules can be compiled.
    Raises ModelError if the pipeline does not load or is not English.
    """
    pipeline, rules = load(spec), rules_of(spec)
    disabled = [] if rules is None else [RULER]
    with pipeline.memory_zone():  # otherwise every new word stays in the vocabulary for the life of the process
        for document in pipeline.pipe(texts, batch_size=batch_size, disable=disabled):
            yield _words(document) if rules is None else _words_by_rules(document, rules)


def _words(document: Doc) -> list[Word]:
    """Read the words of a parsed document."""
    return [Word(word.pos_, word.tag_, word.dep_, word.head.i, word.text) for word in document]


def _words_by_rules(document: Doc, rules: _Rules) -> list[Word]:
    """Read the words of a parsed document whose ruler did not run, applying the compiled rules instead."""
    columns = document.to_array([TAG, DEP, LOWER, IS_SPACE, HEAD])
    heads = (columns[:, 4].astype(np.int64) + np.arange(len(columns))).tolist()  # spaCy stores a head as its distance
    found = rules.compiled([rules.state(*row) for row in columns[:, :4].tolist()])
    return [
        Word(pos, tag, dep, head, word.text) for (pos, tag, dep), head, word in zip(found, heads, document, strict=True)
    ]


class _Rules:
    """Compiled rules, with a cache of token states keyed by spaCy's numeric ids of strings."""

    def __init__(self, pipeline: Language, compiled: AttributeRules) -> None:
        self.strings, self.compiled = pipeline.vocab.strings, compiled
        self.words = {self.strings[word]: word for word in compiled.words}
        self.states: dict[tuple[int, int, str | None, int], State] = {}

    def state(self, tag: int, dep: int, lower: int, is_space: int) -> State:
        """Return the state of a token; the arguments are spaCy's ids of its attributes."""
        key = (tag, dep, self.words.get(lower), is_space)
        if key not in self.states:
            self.states[key] = State(self.strings[tag], self.strings[dep], key[2], bool(is_space))
        return self.states[key]


@cache
def rules_of(spec: str) -> _Rules | None:
    """Compile the pipeline's attribute ruler, or return None if the ruler must run itself.

    The ruler must run itself if it is not the last component, if the pipeline has a component that may depend on the
    ruler, or if a rule is not supported.
    """
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
    """Load the spaCy pipeline's tagger and parser. Raises ModelError if that fails or its labels are not ClearNLP's."""
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
