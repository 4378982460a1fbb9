"""Describe an unusable item as data: a Fault with a reason from the catalog's closed list of quarantine reasons."""

import re
from dataclasses import dataclass

from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.reasons import REASONS
from pairmill.catalog.terms.secrets import without_users

# How Python shows an object: its address in memory would give another row in each run.
_OBJECT = re.compile(r"<[^<>]{1,200} at 0x[0-9a-fA-F]+>")
# The function that a C library names before its message.
_CALLED = re.compile(r"^\w+\(\): ")
# Messages that name no cause.
_VAGUE = {
    "cannot identify image file": "its header is damaged",
    "could not create decoder object": "its header is damaged, or the file is cut",
    "Truncated File Read": "the file ends before its pixels",
    "broken data stream": "its data is damaged",
    "unrecognized data stream": "its data is damaged",
    "cannot load this image": "it holds no pixels",
}


@dataclass(frozen=True)
class Fault:
    """The reason why one item (an id, URI or URL) cannot be used.

    ``reason`` is one of REASONS (else ValueError); ``detail`` is text for a person. An op that sees only bytes leaves
    ``item`` empty; its caller sets ``item`` with `about`.
    """

    item: str
    reason: str
    detail: str

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"'{self.reason}' is not a quarantine reason; they are {', '.join(REASONS)}")
        # The detail quotes outside sources and is shown in terminals: escape control codes, drop users and passwords.
        detail = _OBJECT.sub("the data", self.detail)
        object.__setattr__(self, "detail", without_users(printable(detail)))

    def about(self, item: str) -> "Fault":
        """Return a copy of this fault with ``item`` set."""
        return Fault(item, self.reason, self.detail)


def in_words(error: BaseException) -> str:
    """Describe an exception of a library in one line of plain words, the same in every run (no object addresses)."""
    said = _CALLED.sub("", " ".join(_OBJECT.sub("the data", str(error)).split()))
    if isinstance(error, KeyError):
        return f"it has no entry {said}"
    if cause := next((cause for vague, cause in _VAGUE.items() if vague in said), ""):
        return cause
    kind = re.sub(r"(?<=\w)(?=[A-Z][a-z])", " ", type(error).__name__).lower()
    return said if re.search(r"[^\W\d_]{2}", said) else f"{kind} {said}".strip()
