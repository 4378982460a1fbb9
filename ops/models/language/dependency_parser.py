"""Parse English sentences into words with part of speech, tag and dependency label, by a spaCy pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from pairmill.ops.models.model_digest import resolve
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:  # a CPU second, and the flow process only names models; workers run them
    from spacy.language import Language

# These components take two thirds of the time, and nothing reads their output.
UNUSED = ["ner", "lemmatizer", "senter"]
# Labels of the ClearNLP scheme that neither Universal Dependencies nor the schemes of other languages have.
LABELS = {"dobj", "pobj", "nsubjpass", "relcl"}


class Word(NamedTuple):
    """A token of a parse; a root is its own ``head``."""

    pos: str  # Universal part of speech
    tag: str  # Penn tag
    label: str  # ClearNLP dependency label
    head: int  # index of its head
    text: str


@dataclass(frozen=True)
class DependencyParser:
    """Parse sentences with an English spaCy pipeline ``spec``: 'spacy:NAME' of an installed package, or 'spacy:FOLDER'.

    The pipeline loads on first use, once per process, with tagger and parser only, and is not pickled. ``batch_size``
    does not change results. Every use raises ModelError if spaCy or the pipeline is missing, does not load, or has
    another label scheme.
    """

    spec: str
    batch_size: int = 128
    version: int = 1

    def parse(self, texts: list[str]) -> Iterator[list[Word]]:
        """Yield the words of each text, in input order; a text of several sentences has several roots."""
        pipeline = load(self.spec)
        with pipeline.memory_zone():  # otherwise every new word stays in the vocabulary for the life of the process
            for document in pipeline.pipe(texts, batch_size=self.batch_size):
                yield [Word(word.pos_, word.tag_, word.dep_, word.head.i, word.text) for word in document]


@cache
def load(spec: str) -> "Language":
    """Load the spaCy pipeline's tagger and parser. Raises ModelError if that fails or its labels are not ClearNLP's."""
    path = resolve(spec)  # raises ModelError with the remedy if spaCy is missing; the import would not
    import spacy

    try:
        pipeline = spacy.load(path, exclude=UNUSED)
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
