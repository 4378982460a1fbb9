"""Parse English sentences into words with part of speech, tag and dependency label, by a spaCy pipeline."""

from collections.abc import Iterator
from dataclasses import dataclass

from pairmill.ops.models.language.attribute_rules import Word
from pairmill.ops.models.model_digest import resolve


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
        resolve(self.spec)  # raises ModelError with the remedy if spaCy is missing; the import below would not
        # Imported here: spaCy takes a CPU second, and the flow process only names models; workers run them.
        from pairmill.ops.models.language.dependency_parser_loaded import parse

        return parse(self.spec, self.batch_size, texts)
