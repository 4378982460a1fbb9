"""The language of a sentence."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

# A few hundred characters settle it; longer input costs time in proportion.
ENOUGH = 300
LETTER = re.compile(r"[^\W\d_]")


def language_of(text: str) -> str:
    """ISO 639 code of the most likely language of the first 300 characters; 'und' when there is no letter.

    Addresses and names in another language mislead it, and it guesses on a few words: treat it as a hint below five.
    """
    text = text[:ENOUGH]
    return _identifier().classify(text)[0] if LETTER.search(text) else "und"


@lru_cache(maxsize=1)
def _identifier() -> Any:
    """py3langid's own model (in its package, 1.2 MB), without probabilities: only the best label is asked for."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE)
