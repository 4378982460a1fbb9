"""A bad item is data: what is wrong with it, from a closed list that the catalog's quarantine shares."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.terms.reasons import REASONS


@dataclass(frozen=True)
class Fault:
    """``item`` (an id, URI or URL) cannot be used; ``reason`` is one of REASONS, ``detail`` says it to a person.

    An op that is given bytes alone does not know whose they are: it leaves ``item`` empty and its caller fills it.
    """

    item: str
    reason: str
    detail: str

    def __post_init__(self) -> None:
        if self.reason not in REASONS:
            raise ValueError(f"'{self.reason}' is not a quarantine reason; they are {', '.join(REASONS)}")

    def about(self, item: str) -> Fault:
        """The same fault, of the named item."""
        return Fault(item, self.reason, self.detail)
