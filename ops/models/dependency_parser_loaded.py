"""Load a pipeline of spaCy and run it; the half of ops.models.dependency_parser that imports spaCy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import spacy
from spacy.language import Language

from ops.models.model_digest import ModelError, resolve
from ops.models.word import Word

# They cost two thirds of the time and add nothing that is read.
UNUSED = ["ner", "lemmatizer", "senter"]
# Labels of the ClearNLP scheme that Universal Dependencies and the schemes of other languages lack.
LABELS = {"dobj", "pobj", "nsubjpass", "relcl"}


def parse(spec: str, batch_size: int, texts: list[str]) -> Iterator[list[Word]]:
    """Yield the words of each text, in order. Raises ModelError when the pipeline does not load or is not English."""
    pipeline = load(spec)
    with pipeline.memory_zone():  # else every new word stays in the process's vocabulary
        for document in pipeline.pipe(texts, batch_size=batch_size):
            yield [Word(word.pos_, word.tag_, word.dep_, word.head.i, word.text) for word in document]


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
