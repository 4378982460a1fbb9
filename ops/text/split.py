"""Split text into sentences, and normalise sentences to find equal ones."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

BREAK = re.compile(r"\s*\n\s*")


@dataclass(frozen=True)
class SentenceSplitter:
    """Split text into its sentences in order, white space collapsed, empty ones dropped; ``language`` is ISO 639-1.

    By sentencex's rules and abbreviations (offline); an unknown language falls back to a related one or English. A line
    break always ends a sentence. When ``version`` counts up, what was split before is read again.
    """

    language: str = "en"
    version: int = 1

    def __call__(self, text: str) -> list[str]:
        # Lone surrogates cannot pass into the splitter, nor into any table.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        sentences = (" ".join(part.split()) for line in BREAK.split(clean) for part in segment(self.language, line))
        return [sentence for sentence in sentences if sentence]


def normalise(sentence: str) -> str:
    """Normalise a sentence, so that equal ones are equal text: NFKC, white space collapsed, case folded, NFKC again.

    Folding case may undo the normal form, hence twice: normalise(normalise(x)) == normalise(x).
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold())
    return " ".join(folded.split())
