"""Find words (letters and digits of any script, with the marks that belong to them), and names: capitalised words."""

import re

import regex

# By Unicode's word boundaries (UAX 29, rule WB4) combining marks and joiners belong to the character before them: vowel
# signs of Hindi, points of Hebrew and Arabic, decomposed accents. Python's \\w has none of them.
RUN = r"[\p{L}\p{N}_][\p{L}\p{N}\p{M}_\u200c\u200d]*"
WORD = regex.compile(RUN)


NAME = regex.compile(r"[A-Z][\p{L}\p{N}\p{M}_’'-]+(?: [A-Z][\p{L}\p{N}\p{M}_’'-]+)*")
# A sentence's first word is capitalised too, and so is that after a full stop, a quotation mark or a colon.
BEGINS = re.compile(r"(?:^|[.!?:;…\"“”‘(\[]\s*)$")


def names(text: str) -> set[str]:
    """Return the runs of capitalised words that do not begin a sentence: {"Clara", "Lake Como"}.

    A rough count of named entities that needs no model: it misses names that begin a sentence, counts German nouns, and
    finds none in scripts without capitals.
    """
    return {found[0] for found in NAME.finditer(text) if not BEGINS.search(text[: found.start()])}
