"""Read a sample of a source: some of its units, and of each unit some of its documents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from pairmill.catalog.terms.ids import text_id
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.source import Source


@dataclass(frozen=True)
class UnitSample:
    """The units drawn from one source.

    Attributes:
        units: Their addresses.
        of: New units of the source.
        documents: Share of each unit's documents that is read, above 0 and at most 1.
        seed: Chooses these documents.
    """

    units: frozenset[str]
    of: int
    documents: float = 1.0
    seed: str = ""

    @property
    def share(self) -> float:
        """Share of the source's documents in the sample, on average."""
        return len(self.units) / self.of * self.documents if self.of else 1.0


@dataclass
class SampledSource(Source):
    """A source of which only a sample is listed and read. The ids of its documents are those of the whole source."""

    sample: UnitSample = field(default_factory=lambda: UnitSample(frozenset(), 0))

    def listed(self) -> Iterator[Unit | Fault]:
        """List the units of the sample, and no file that is no document."""
        units = self.sample.units
        return (each for each in super().listed() if isinstance(each, Unit) and each.uri in units)

    def read(self, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a unit's faults, and the documents of the sample."""
        for found in super().read(unit):
            if isinstance(found, Fault) or self._is_drawn(found.uri):
                yield found

    def _is_drawn(self, uri: str) -> bool:
        """Return whether a document is drawn, by the hash of its address relative to the source."""
        share, address = self.sample.documents, uri.removeprefix(self.uri)
        return share >= 1 or int(text_id(address, self.sample.seed)[:13], 16) < share * 16**13


def sample_of(source: Source, sample: UnitSample) -> SampledSource:
    """Return the sample of a source."""
    return SampledSource(source.uri, source.tree, source.formats, sample)
