"""Define Word, one token of a dependency parse."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """A token: Universal ``pos``, Penn ``tag``, ClearNLP ``label``; ``head`` is its head's index, its own at a root."""

    pos: str
    tag: str
    label: str
    head: int
    text: str
