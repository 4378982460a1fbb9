"""Remove the characters that act on a terminal from texts that are stored, and make them visible in what is shown."""

import re

# C0, DEL and C1 but for white space (tab, line ends, NEL); and half letters, which no table holds.
_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
# Of JSON as Python writes it: C0 by its number, or backspace; a backslash before them is a letter of the text.
_ESCAPED = re.compile(r"\\(?:\\|u00[01][0-9a-f]|b)")
# Whatever moves the cursor, begins a sequence, or turns the direction of what follows (UAX 9) to its end.
_ACTING = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Remove control codes and lone surrogates: a page's ``&#27;`` must reach no terminal, many stop at NUL."""
    return text if text.isprintable() else _NO_TEXT.sub("", text)


def printable_json(text: str) -> str:
    """Remove control codes from the texts of a JSON document as ``json.dumps`` writes it."""
    return printable(_ESCAPED.sub(lambda found: found[0] if found[0] == r"\\" else "", text) if "\\" in text else text)


def visible(text: str) -> str:
    r"""Write control codes and overrides of direction as ``\u001b``, which is the same text where it is JSON.

    Tabs and line ends stay.
    """
    return text if text.isprintable() else _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
