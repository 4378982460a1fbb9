"""Write texts of the web into the Markdown of artifacts, where none of them takes effect."""

import re

from pairmill.catalog.terms.controls import visible


def plain(text: str) -> str:
    """Escape web texts and file names, so that neither Markdown nor HTML in them takes effect.

    All ASCII punctuation is escaped, including ':' and '.' of an address: some interfaces turn an address into a link.
    """
    return re.sub(r"([!-/:-@\[-`{-~])", r"\\\1", visible(" ".join(text.split())))


def code(text: str) -> str:
    """Format ``text`` as Markdown code, fenced by more backticks than its longest run of them."""
    text = visible(" ".join(text.split()))
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"
