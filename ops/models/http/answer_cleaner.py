"""Clean what an endpoint says before it is stored or shown: control codes, half characters, the key it was sent."""

from __future__ import annotations

import re

from pairmill.catalog.terms.controls import printable

KEY = "(key)"
# What people give a server that asks for no key ("x", "EMPTY") is no secret, and stands in other words. Of a generated
# text a key is part only from so many characters on, since a shorter one may be a word of it.
SHORTEST_KEY, SHORTEST_IN_TEXTS = 6, 16
# What may stand between the characters of a key and is not seen: soft hyphen, joiners, marks of direction, variation
# selectors, tags; and the backslash that JSON puts before a quotation mark.
_UNSEEN = (
    "[\\\\\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\U000e0000-\U000e007f]*"
)


class Cleaner:
    """Cleans the texts and the lines of an endpoint that was sent ``key``, '' for none."""

    def __init__(self, key: str = "") -> None:
        found = re.compile(_UNSEEN.join(map(re.escape, key)), re.IGNORECASE) if len(key) >= SHORTEST_KEY else None
        self._in_lines = found
        self._in_texts = found if len(key) >= SHORTEST_IN_TEXTS else None

    def text(self, said: str) -> str:
        """Clean a generated text; its line ends stay."""
        return _without(self._in_texts, said)

    def line(self, said: str, most: int) -> str:
        """Clean an error, a header or a name, and put it into one line of ``most`` characters."""
        return " ".join(_without(self._in_lines, said).split())[:most]


def _without(key: re.Pattern[str] | None, said: str) -> str:
    # JSON may hold halves of characters (a token limit cuts emoji), which no table takes.
    whole = printable(said.encode("utf-8", "replace").decode())
    return key.sub(KEY, whole) if key else whole
