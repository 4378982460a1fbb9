"""Describe an unusable item as data: a Fault with a reason from the closed list of the catalog's quarantine."""

from __future__ import annotations

from dataclasses import dataclass

from pairmill.catalog.terms.controls import printable
from pairmill.catalog.terms.reasons import REASONS
from pairmill.catalog.terms.secrets import without_users


@dataclass(frozen=True)
class Fault:
    """Why ``item`` (an id, URI or URL) cannot be used: ``reason`` is one of REASONS, ``detail`` text for a person.

    An op that is given bytes alone leaves ``item`` empty for its caller to fill. Raises ValueError for another reason.
    """

    item: str
    reason: str
    detail: str

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"'{self.reason}' is not a quarantine reason; they are {', '.join(REASONS)}")
        # It quotes names and texts of strangers, and is shown in terminals.
        object.__setattr__(self, "detail", without_users(printable(self.detail)))

    def about(self, item: str) -> Fault:
        """Return the same fault with ``item`` set."""
        return Fault(item, self.reason, self.detail)
