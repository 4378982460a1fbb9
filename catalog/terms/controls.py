"""Remove control characters from stored texts, and escape them in displayed texts."""

import re

# C0, DEL and C1 except white space (tab, line ends, NEL); and lone surrogates, which no table can store.
_NO_TEXT = re.compile(r"[\0-\x08\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff]")
# C0 in JSON as Python writes it: \u00XX, or \b. An escaped backslash before them is matched first: it is text.
_ESCAPED = re.compile(r"\\(?:\\|u00(?:0[0-8ef]|1[0-9a-f])|b)")
# Characters that move the cursor, begin a terminal sequence, or change the text direction (UAX 9).
_ACTING = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """Return ``text`` without control codes and lone surrogates.

    A page's ``&#27;`` (escape) must not reach a terminal, and many programs stop reading at NUL.
    """
    return text if text.isprintable() else _NO_TEXT.sub("", text)


def printable_json(text: str) -> str:
    """Return a JSON document, as written by ``json.dumps``, without control codes in its texts."""
    return printable(_ESCAPED.sub(lambda found: found[0] if found[0] == r"\\" else "", text) if "\\" in text else text)


def visible(text: str) -> str:
    r"""Return ``text`` with control codes and direction overrides escaped as ``\u001b``, which JSON reads the same.

    Tabs and line ends stay.
    """
    return text if text.isprintable() else _ACTING.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
