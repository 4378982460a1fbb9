"""Model what a lake must hold after each command, in plain Python: documents, pictures, versions, removals.

Pages, pictures and the numbers of imports have names of one line; nothing here knows tables or files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

Document = tuple[int, int]  # page, and the version of its text
Pair = tuple[int, Document]  # picture, and the document that shows it
Version = tuple[str, int]  # dataset, number


@dataclass(frozen=True)
class Held:
    """What a lake holds.

    Attributes:
        pictures: The pictures that each document shows.
        gone: Documents that the source has no more, or has in another version.
        payloads: Pictures whose bytes are stored.
        indexed: Pictures that imports find: of a killed run, not all that are shown.
        measured: Pictures with a sharpness.
        imports: The values of each import, by its digest; the newest is ``newest``.
        versions: The pairs of each published version.
        banned: Pictures that may not come back.
        missing: Pages of which a picture was not found.
    """

    pictures: Mapping[Document, frozenset[int]] = field(default_factory=dict)
    gone: frozenset[Document] = frozenset()
    payloads: frozenset[int] = frozenset()
    indexed: frozenset[int] = frozenset()
    measured: frozenset[int] = frozenset()
    imports: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    newest: str = ""
    versions: Mapping[Version, frozenset[Pair]] = field(default_factory=dict)
    banned: frozenset[int] = frozenset()
    missing: frozenset[int] = frozenset()

    @property
    def shown(self) -> frozenset[int]:
        """The pictures that any document shows."""
        return frozenset().union(*self.pictures.values())

    @property
    def current(self) -> frozenset[int]:
        """The pictures of documents that count."""
        return frozenset().union(*(each for name, each in self.pictures.items() if name not in self.gone))

    def without_page(self, page: int) -> Held:
        """Return what is left once all versions of a page are removed, with the pictures of no other page."""
        taken = {document for document in self.pictures if document[0] == page}
        left = {document: shown for document, shown in self.pictures.items() if document not in taken}
        alone = frozenset().union(*(self.pictures[each] for each in taken)) - frozenset().union(*left.values())
        return self._without(left, alone, lambda pair: pair[1] in taken or pair[0] in alone)

    def without_picture(self, picture: int) -> Held:
        """Return what is left once a picture is removed from every page."""
        left = {document: shown - {picture} for document, shown in self.pictures.items()}
        return self._without(left, frozenset([picture]), lambda pair: pair[0] == picture)

    def _without(self, left, pictures: frozenset[int], takes) -> Held:
        return Held(
            pictures=left,
            gone=self.gone & frozenset(left),
            payloads=self.payloads - pictures,
            indexed=self.indexed - pictures,
            measured=self.measured - pictures,
            imports={digest: {each: value for each, value in values.items() if each not in pictures}
                     for digest, values in self.imports.items()},
            newest=self.newest,
            versions={name: frozenset(pair for pair in pairs if not takes(pair))
                      for name, pairs in self.versions.items()},
            banned=self.banned | pictures,
            missing=self.missing & frozenset(page for page, _ in left),
        )  # fmt: skip


@dataclass
class LakeModel:
    """The last state of a lake that was checked, and what no command may undo: removed pages, used numbers.

    ``sizes`` are the shorter sides of the pictures in pixels.
    """

    sizes: Mapping[int, int]
    held: Held = field(default_factory=Held)
    removed_pages: set[int] = field(default_factory=set)
    used: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def expect(self, is_so: bool, fault: str) -> None:
        """Note a fault unless ``is_so``."""
        if not is_so:
            self.faults.append(fault)

    def kept(self, found: Held, side: int, least: float | None = None) -> frozenset[int]:
        """Return the pictures that the rules keep: of a shorter side, and of an imported value if that is asked."""
        kept = frozenset(each for each in found.current if self.sizes[each] >= side)
        if least is None:
            return kept
        values = found.imports.get(found.newest, {})
        return frozenset(each for each in kept if values.get(each, -1.0) >= least)

    def saw(self, found: Held, step: str) -> None:
        """Check what is true of every lake, and keep the state."""
        self.expect(found.shown <= found.payloads, f"{step}: pictures {found.shown - found.payloads} have no bytes")
        self.expect(not found.shown & found.banned, f"{step}: {found.shown & found.banned} were removed, and are shown")
        back = {document for document in found.pictures if document[0] in self.removed_pages}
        self.expect(not back, f"{step}: documents {back} were removed, and are there")
        self.expect(self.held.banned <= found.banned, f"{step}: bans are lost")
        for (name, number), pairs in found.versions.items():
            stray = {pair for pair in pairs if pair[0] in found.banned}
            self.expect(not stray, f"{step}: {name}@{number} has removed pictures {stray}")
            if (name, number) not in self.held.versions:
                self.expect(number > self.used.get(name, 0), f"{step}: the number of {name}@{number} was used before")
                self.used[name] = max(number, self.used.get(name, 0))
        self.held = found

    def same(self, found: Held, expected: Held, step: str, but: Iterable[str] = ()) -> None:
        """Check that two states are equal, except for the fields ``but``."""
        for name in vars(expected):
            if name not in but:
                one, other = getattr(found, name), getattr(expected, name)
                self.expect(one == other, f"{step}: {name} is {_short(one)} instead of {_short(other)}")

    def ran(self, found: Held, source: Mapping[int, int], late: frozenset[int], step: str, whole: bool) -> None:
        """Check the state after a run over ``source`` (page -> version); ``whole`` if nothing has killed it.

        ``late`` are pictures that may have come after their pages.
        """
        before = self.held
        wanted = {page: version for page, version in source.items() if page not in self.removed_pages}
        may = set(before.pictures) | set(wanted.items())
        self.expect(set(found.pictures) <= may, f"{step}: unknown documents {set(found.pictures) - may}")
        lost = set(before.pictures) - set(found.pictures)
        self.expect(not lost, f"{step}: documents {lost} are lost")
        for document, shown in before.pictures.items():
            now = found.pictures.get(document, shown)
            self.expect(shown <= now <= shown | late, f"{step}: {document} shows {set(now)} instead of {set(shown)}")
        for digest, values in before.imports.items():
            self.expect(found.imports.get(digest) == values, f"{step}: import {digest} changed")
        new = {name: pairs for name, pairs in found.versions.items() if name not in before.versions}
        old = {name: pairs for name, pairs in found.versions.items() if name in before.versions}
        self.expect(old == before.versions, f"{step}: published versions changed: {_short(old)}")
        self.expect(len(new) <= 1 and {name for name, _ in new} <= {"small"}, f"{step}: new versions {list(new)}")
        if not whole:
            return
        self.expect(set(wanted.items()) <= set(found.pictures), f"{step}: {set(wanted.items())} were not all read")
        self.expect(found.indexed == found.shown, f"{step}: indexed are {set(found.indexed)} of {set(found.shown)}")
        for document in found.pictures:
            page, version = document
            if page in wanted:
                is_gone = document in found.gone
                self.expect(
                    is_gone == (wanted[page] != version), f"{step}: {document} is {'' if is_gone else 'not '}gone"
                )

    def published(self, found: Held, name: str, kept: frozenset[int], step: str) -> None:
        """Check the newest version of a dataset against the pictures that its rules keep."""
        numbers = [number for each, number in found.versions if each == name]
        if not numbers:
            self.expect(not kept, f"{step}: no version of {name} is published")
            return
        pairs = found.versions[name, max(numbers)]
        have = frozenset(picture for picture, _ in pairs)
        self.expect(have == kept, f"{step}: {name}@{max(numbers)} has {set(have)} instead of {set(kept)}")
        self.expect(len(pairs) == len(have), f"{step}: {name}@{max(numbers)} has a picture twice")
        for picture, document in pairs:
            is_shown = picture in found.pictures.get(document, ()) and document not in found.gone
            self.expect(is_shown, f"{step}: {name}@{max(numbers)}: {document} does not show {picture}")


def _short(value: object) -> str:
    return str(value)[:400]
