"""Find names in texts: runs of capitalised words."""

import re

import regex

NAME = regex.compile(r"[A-Z][\p{L}\p{N}\p{M}_’'-]+(?: [A-Z][\p{L}\p{N}\p{M}_’'-]+)*")
# A sentence's first word is capitalised too, and so is that after a full stop, a quotation mark or a colon.
BEGINS = re.compile(r"(?:^|[.!?:;…\"“”‘(\[]\s*)$")


def names(text: str) -> set[str]:
    """Return the runs of capitalised words that do not begin a sentence: {"Clara", "Lake Como"}.

    A rough count of named entities that needs no model: it misses names that begin a sentence, counts German nouns, and
    finds none in scripts without capitals.
    """
    return {found[0] for found in NAME.finditer(text) if not BEGINS.search(text[: found.start()])}
