"""Describe an unusable item as data: a Fault with a reason from the catalog's closed list of quarantine reasons."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.reasons import REASONS
from pairmill.catalog.terms.secrets import without_users

_ADDRESS = re.compile(r"<[\w.]+ object at 0x[0-9a-f]+>")


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
        # An object's address in memory, which Pillow quotes, would give another row in each run.
        detail = _ADDRESS.sub("the data", self.detail)
        object.__setattr__(self, "detail", without_users(printable(detail)))

    def about(self, item: str) -> Fault:
        """Return a copy of this fault with ``item`` set."""
        return Fault(item, self.reason, self.detail)
