"""Find and decompress the members of a zip, within a size that a worker's memory can hold."""

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.charset import guess_codec
from pairmill.ops.read.places.tar_members import is_unsafe, plain
from pairmill.ops.read.places.tree import MAX_BYTES, refused
from pairmill.ops.read.places.unpack import ALWAYS_ALLOWED, MAX_RATIO

DAMAGED = (zipfile.BadZipFile, zlib.error, OSError, EOFError, NotImplementedError, ValueError, struct.error)
DAMAGED += (RuntimeError, OverflowError, LookupError)
UTF_8_FLAG = 0x800
# Encodings of names that a detector distinguishes from cp437 and cp850. In Latin letters the two are alike.
NAMED_BY = frozenset(("utf-8", "cp866", "cp932", "cp949", "gb18030", "big5hkscs"))
LOCAL = struct.Struct("<4sHHHHHIIIHH")


class ZipMembers:
    """Plain files of a zip (``found``) and faults of its other members; a zip that lost its directory is scanned."""

    def __init__(self, file: IO[bytes], uri: str) -> None:
        self.uri = uri
        self.faults: list[Fault] = []
        self.found: dict[str, zipfile.ZipInfo | tuple[int, int, int]] = {}
        self._file = file
        try:
            self._zip: zipfile.ZipFile | None = zipfile.ZipFile(file)
        except DAMAGED as error:
            self._zip = None
            self.faults.append(Fault(uri, "truncated", f"no directory at the end of the zip ({in_words(error)})"))
            self._walk()
            return
        listed = self._zip.infolist()
        for info, name in zip(listed, _names(listed), strict=True):
            self._take(info, name)

    def _take(self, info: zipfile.ZipInfo, name: str) -> None:
        """Add the member of the directory that is called ``name`` to ``found`` or to ``faults``."""
        item, mode = f"{self.uri}#{name}", info.external_attr >> 16
        if name.endswith("/"):
            return
        if is_unsafe(info.orig_filename) or is_unsafe(name):
            self._refuse(item, "unsafe_path", "the member's name leaves the archive")
        elif stat.S_ISLNK(mode):
            self._refuse(item, "unsafe_path", "a link inside an archive is not followed")
        elif info.flag_bits & 1:
            self._refuse(item, "undecodable", "the member is encrypted")
        elif info.file_size > ALWAYS_ALLOWED + MAX_RATIO * info.compress_size:
            self._refuse(item, "bomb", f"{info.compress_size} packed bytes would give {info.file_size}")
        elif plain(name) in self.found:
            self._refuse(item, "bad_record", "a second member of this name; the first one counts")
        else:
            self.found[plain(name)] = info

    def _refuse(self, item: str, reason: str, detail: str) -> None:
        """Add a fault for one member."""
        self.faults.append(Fault(item.encode("utf-8", "replace").decode(), reason, detail))

    def _walk(self) -> None:
        """Find the members before the cut one by one, as long as the local headers state their sizes."""
        at = 0
        while True:
            self._file.seek(at)
            header = self._file.read(LOCAL.size)
            if len(header) < LOCAL.size or not header.startswith(b"PK\3\4"):
                return
            _, _, flags, method, _, _, _, packed, size, n_name, n_extra = LOCAL.unpack(header)
            name = self._file.read(n_name).decode("utf-8", "replace")
            start = at + LOCAL.size + n_name + n_extra
            at = start + packed
            if flags & 8 or self._file.seek(0, 2) < at:
                return self._refuse(f"{self.uri}#{name}", "truncated", "the zip is cut inside this member")
            safe = not is_unsafe(name) and not name.endswith("/") and method in (0, 8) and not flags & 1
            if safe and size <= ALWAYS_ALLOWED + MAX_RATIO * packed:
                self.found.setdefault(plain(name), (start, packed, size))

    def read(self, name: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Decompress a member of at most ``most`` bytes, or return a Fault."""
        place, item = self.found[name], f"{self.uri}#{name}"
        size = place.file_size if isinstance(place, zipfile.ZipInfo) else place[2]
        if fault := refused(item, size, most):
            return fault
        try:
            data = self._content(place, size)
        except DAMAGED as error:
            return Fault(item, "undecodable", f"damaged inside the zip: {in_words(error)}")
        if len(data) != size:
            return Fault(item, "undecodable", f"damaged inside the zip: {len(data)} bytes where {size} are announced")
        return data

    def _content(self, place: zipfile.ZipInfo | tuple[int, int, int], size: int) -> bytes:
        """Decompress at most one byte more than ``size``. Raises one of DAMAGED."""
        if isinstance(place, zipfile.ZipInfo):
            assert self._zip is not None
            with self._zip.open(place) as member:
                return member.read(size + 1)
        self._file.seek(place[0])
        packed = self._file.read(place[1])
        return packed if place[1] == size else zlib.decompressobj(-15).decompress(packed, size + 1)

    def names(self) -> Iterator[tuple[str, int]]:
        """Yield (name, size in bytes) of each plain file."""
        for name, place in self.found.items():
            yield name, place.file_size if isinstance(place, zipfile.ZipInfo) else place[2]


def _names(listed: list[zipfile.ZipInfo]) -> list[str]:
    """Return the members' names; decode those that Python reads as cp437 by the encoding of all together."""
    raw = [_unflagged(info) for info in listed]
    codec = guess_codec(b"\n".join(raw))
    if codec.name not in NAMED_BY:
        raw = [b""] * len(listed)
    return [codec.decode(name, "replace")[0] if name else info.filename for name, info in zip(raw, listed, strict=True)]


def _unflagged(info: zipfile.ZipInfo) -> bytes:
    """Return the bytes of a name beyond ASCII that has neither the UTF-8 flag nor a field with the name in Unicode."""
    name = info.filename
    is_told = name.isascii() or info.flag_bits & UTF_8_FLAG or name != info.orig_filename
    return b"" if is_told else name.encode("cp437")
