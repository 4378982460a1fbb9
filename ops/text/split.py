"""Split text into sentences, and normalise sentences to find equal ones."""

import re
import unicodedata
from dataclasses import dataclass

from sentencex import segment  # pyright: ignore[reportAttributeAccessIssue]

BREAK = re.compile(r"\s*\n\s*")


@dataclass(frozen=True)
class SentenceSplitter:
    """Split a text into sentences, in order, with white space collapsed and without empty sentences.

    ``language`` is an ISO 639-1 code. The rules and abbreviations are sentencex's (offline); an unknown one uses those
    of a related one or English. A line break always ends a sentence. When ``version`` increases (not for changes of
    rare texts), all texts are read again. ``is_lower`` lower-cases sentences after the split, which needs capitals.
    """

    language: str = "en"
    is_lower: bool = False
    version: int = 1

    def __call__(self, text: str) -> list[str]:
        """Split one text."""
        # Neither the splitter nor a table accepts lone surrogates.
        clean = text.encode("utf-8", "replace").decode("utf-8")
        sentences = (" ".join(part.split()) for line in BREAK.split(clean) for part in segment(self.language, line))
        return [sentence.lower() if self.is_lower else sentence for sentence in sentences if sentence]


def normalise(sentence: str) -> str:
    """Return a sentence's canonical form, so that equal sentences have equal text.

    The steps are NFKC, casefolding, NFKC again, and collapsing white space. Casefolding may undo NFKC, hence the second
    pass: normalise(normalise(x)) == normalise(x).
    """
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", sentence).casefold())
    return " ".join(folded.split())
