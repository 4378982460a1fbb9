"""Define Word, one token of a dependency parse."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """A token of a parse: Universal ``pos``, Penn ``tag``, ClearNLP ``label``, and the index ``head`` of its head.

    A root is its own head.
    """

    pos: str
    tag: str
    label: str
    head: int
    text: str
