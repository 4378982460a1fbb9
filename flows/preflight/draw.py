"""Draw a sample of a source's units with about a given number of pictures, and read that sample."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import contents
from pairmill.catalog.queries.losses.unit_outcomes import pictures_by_source
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.ids import text_id
from pairmill.flows.run.run_start import Checked, session_on
from pairmill.flows.run.settings import Compute
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Document, Unit
from pairmill.ops.read.source import Source, SourceError, open_source, row_of
from pairmill.tasks.collect.ingest import first_readers, ingest, reader_names
from pairmill.tasks.collect.listing import listed

# The first units of a source, whose pictures are counted to size the sample. The bytes bound a source of large tars.
PILOT_UNITS = 32
PILOT_BYTES = 256_000_000
# With fewer units in the sample, documents stand for units: a variance between three units says little.
FEWEST_UNITS = 10


@dataclass(frozen=True)
class UnitSample:
    """The units drawn from one source."""

    units: frozenset[str]  # addresses of the units
    of: int  # number of new units of the source
    documents: float = 1.0  # share of each unit's documents that is read, above 0 and at most 1
    seed: str = ""  # chooses these documents


@dataclass
class SampledSource(Source):
    """A source that lists and reads only a sample of its units. Documents have the same ids as in the whole source."""

    sample: UnitSample = field(default_factory=lambda: UnitSample(frozenset(), 0))

    def listed(self) -> Iterator[Unit | Fault]:
        """Yield the units of the sample, without the faults of other files."""
        units = self.sample.units
        return (each for each in super().listed() if isinstance(each, Unit) and each.uri in units)

    def read(self, unit: Unit) -> Iterator[Document | Fault]:
        """Yield a unit's faults, and those of its documents that the sample draws."""
        for found in super().read(unit):
            if isinstance(found, Fault) or self._is_drawn(found.uri):
                yield found

    def _is_drawn(self, uri: str) -> bool:
        """Return whether a document is drawn, by the hash of its address relative to the source."""
        share, address = self.sample.documents, uri.removeprefix(self.uri)
        return share >= 1 or int(text_id(address, self.sample.seed)[:13], 16) < share * 16**13


@dataclass(frozen=True)
class Drawn:
    """New units of one source in random order, as (address, bytes), and ``of``: the number of its new units."""

    uri: str
    of: int
    units: tuple[tuple[str, int], ...]

    def first(self, n: int, documents: float, seed: str) -> UnitSample:
        """Return a sample of the first ``n`` units; ``documents`` is the share of their documents to read."""
        return UnitSample(frozenset(uri for uri, _ in self.units[:n]), self.of, documents, seed)


@dataclass(frozen=True)
class Sampling:
    """The sampled units of each source, by the source's address.

    The same share of units is drawn from every source: a stratified sample, with the sources as strata.
    """

    samples: dict[str, UnitSample]

    def of(self, source: Source) -> Source:
        """Return ``source`` restricted to its sampled units."""
        return SampledSource(source.uri, source.tree, source.formats, self.samples[source.uri])

    @property
    def units(self) -> int:
        """Number of units in the sample."""
        return sum(len(each.units) for each in self.samples.values())

    @property
    def of_units(self) -> int:
        """Number of new units of all sources."""
        return sum(each.of for each in self.samples.values())

    @property
    def share(self) -> float:
        """Share of all new documents that the sample reads, above 0 and at most 1."""
        documents = max(each.documents for each in self.samples.values())
        return self.units / self.of_units * documents

    @property
    def by_document(self) -> bool:
        """Whether variances are between documents instead of units: few units, or units read in part."""
        return self.units < min(FEWEST_UNITS, self.of_units + 1) or any(s.documents < 1 for s in self.samples.values())


def draw(lake: Lake, uris: tuple[str, ...], checked: Checked, compute: Compute, folder: Path, most: int) -> Sampling:
    """Draw units that are new to ``lake``, with about ``most`` pictures in all.

    The first units are read once into a lake of their own below ``folder``, to count their pictures. Raises SourceError
    if there is no new unit.
    """
    recipe = checked[0].recipe
    seed = str(recipe.seed)
    names = reader_names(recipe.ingest, recipe.captions.own is not None)
    readers = names, first_readers(recipe.ingest.language)
    drawn = []
    for uri in uris:
        source = open_source(uri)
        contents.list_units(lake, map(row_of, listed(source)), *readers)
        n, units = contents.draw_units(lake, source.uri, seed, most)
        drawn.append(Drawn(source.uri, n, tuple(units)))
    if not any(each.of for each in drawn):
        raise SourceError(f"the lake has read all of {', '.join(each.uri for each in drawn)}; there is nothing new.")
    pilot = Sampling({each.uri: each.first(_pilot(each), 1.0, seed) for each in drawn})
    with create_or_open(folder / "pilot") as opened, session_on(opened, checked, compute, "preflight", uris) as session:
        session.sampled = pilot.of
        ingest(session)
        counts = pictures_by_source(opened)
    return size_sample(drawn, pilot, counts, most, seed)


def size_sample(drawn: Sequence[Drawn], pilot: Sampling, pictures: dict[str, int], most: int, seed: str) -> Sampling:
    """Return a sample of about ``most`` pictures, of the first units of each source.

    ``pilot`` is a first, small sample, and ``pictures`` the number of its pictures by source.
    """
    read = {uri: max(1, len(each.units)) for uri, each in pilot.samples.items()}
    expected = {each.uri: pictures.get(each.uri, 0) / read[each.uri] * each.of for each in drawn}
    share = min(1.0, most / max(1.0, sum(expected.values())))
    n_units = {each.uri: min(each.of, len(each.units), max(1, round(share * each.of))) for each in drawn}
    total = sum(n_units.values())
    if total < FEWEST_UNITS:  # few large units: parts of more units vary less than all of a few
        wider = min(1.0, FEWEST_UNITS / sum(each.of for each in drawn))
        n_units = {each.uri: min(len(each.units), max(1, round(wider * each.of))) for each in drawn}
    n = sum(expected[each.uri] * n_units[each.uri] / max(1, each.of) for each in drawn)
    documents = min(1.0, most / n) if n > 1.2 * most else 1.0
    return Sampling({each.uri: each.first(n_units[each.uri], documents, seed) for each in drawn})


def _pilot(drawn: Drawn) -> int:
    """Return the number of units in a source's pilot: at least one, at most PILOT_UNITS of PILOT_BYTES."""
    n, size = 0, 0
    for _, n_bytes in drawn.units[:PILOT_UNITS]:
        size += n_bytes
        if n and size > PILOT_BYTES:
            break
        n += 1
    return n


def scale_clusters(recipe: Recipe, share: float) -> Recipe:
    """Return the recipe with its numbers of clusters times ``share``, so that a sample's clusters keep their size."""
    fewer = {}
    for name in ("association", "duplicates", "balance"):
        section = getattr(recipe, name)
        fewer[name] = section.model_copy(update={"clusters": max(1, round(section.clusters * share))})
    return recipe.model_copy(update=fewer)
