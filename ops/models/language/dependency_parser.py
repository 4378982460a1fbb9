"""Parse English sentences into words with part of speech, tag and dependency label, by a pipeline of spaCy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from pairmill.ops.models.language.word import Word
from pairmill.ops.models.model_digest import resolve


@dataclass(frozen=True)
class DependencyParser:
    """Parse sentences with ``spec``, an English pipeline: 'spacy:NAME' of an installed package, or 'spacy:FOLDER'.

    Loaded on first use, once a process, tagger and parser alone; pickled without weights. ``batch_size`` is placement.
    Using it raises ModelError when spaCy or the pipeline is missing, does not load, or has labels of another scheme.
    """

    spec: str
    batch_size: int = 128
    version: int = 1

    def parse(self, texts: list[str]) -> Iterator[list[Word]]:
        """Yield the words of each text in order; a text of several sentences has several roots."""
        resolve(self.spec)  # where spaCy is missing, this says so; the import below would not
        # spaCy takes a CPU second to import, and a flow names models that only its workers run.
        from pairmill.ops.models.language.dependency_parser_loaded import parse

        return parse(self.spec, self.batch_size, texts)
