"""Find the members of a tar from their headers alone; no header can exhaust memory or point outside the tar.

Supports POSIX.1-2001 (ustar, pax) and GNU tar, as the standard library and webdataset write them.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from tarfile import TarInfo
from typing import IO, NamedTuple

from pairmill.ops.fault import Fault
from pairmill.ops.header_number import whole_number
from pairmill.ops.read.places.tree import is_storable

BLOCK = 512
# GNU's long names and pax headers, which tell of the member after them. A name or a pax record has some hundred bytes;
# the standard library would read gigabytes of one into memory.
EXTENSIONS, MAX_EXTENSION = (b"L", b"K", b"x", b"g"), 64 * 1024


class Member(NamedTuple):
    """A regular file in a tar: its path inside the archive with '/', and its bytes' offset and size in the tar."""

    name: str
    offset: int
    size: int


def members(file: IO[bytes], uri: str, at_most: int | None = None) -> Iterator[Member | Fault]:
    """Yield every member of a tar in the order of the file, at most ``at_most``.

    A Fault stands for each member that is not a plain file, and for the rest of a cut or damaged tar. Member names are
    safe: neither absolute nor with '..'. Of two members with one name the first counts.
    """
    end = file.seek(0, 2)
    at, seen, extra = 0, set(), {}
    while at_most is None or len(seen) < at_most:
        file.seek(at)
        header = file.read(BLOCK)
        if len(header) < BLOCK:
            detail = "no end mark" if at == end else f"cut inside the header at byte {at}"
            yield Fault(f"{uri}#byte={at}", "truncated", f"the tar ends early: {detail}")
            return
        if not any(header):
            return
        info = _parse(header, extra)
        if info is None:
            yield Fault(f"{uri}#byte={at}", "bad_record", "no tar header here; what follows is lost")
            return
        at += BLOCK
        if info.type in EXTENSIONS:
            if info.size > MAX_EXTENSION:
                yield Fault(f"{uri}#byte={at}", "bomb", f"a header of {info.size} bytes; what follows is lost")
                return
            extra |= _extension(info.type, file.read(info.size))
        else:
            if found := _member(uri, info, at, end, seen):
                yield found
            if at + info.size > end:
                return
            extra = {}
        at += -(-info.size // BLOCK) * BLOCK


def _parse(header: bytes, extra: dict[str, str]) -> TarInfo | None:
    """Parse a member's header with the path and size of its extensions; return None if the block is no header."""
    try:
        info = TarInfo.frombuf(header, "utf-8", "surrogateescape")
        if info.type not in EXTENSIONS:
            info.name = extra.get("path") or info.name
            size = whole_number(extra["size"]) if extra.get("size") else info.size
            info.size = -1 if size is None else size
    except tarfile.HeaderError:
        return None
    return info if info.size >= 0 else None


def _member(uri: str, info: TarInfo, at: int, end: int, seen: set[str]) -> Member | Fault | None:
    """Validate one member; return None for a folder and a Fault for a member that cannot be read."""
    if info.name and not is_storable(info.name):
        return Fault(f"{uri}#byte={at}", "bad_encoding", "the member's name is not UTF-8")
    item = f"{uri}#{info.name}"
    if info.isdir():
        return None
    if is_unsafe(info.name):
        return Fault(item, "unsafe_path", "the member's name leaves the archive")
    if info.issym() or info.islnk():
        return Fault(item, "unsafe_path", "a link inside an archive is not followed")
    if not info.isreg() or info.issparse():
        return Fault(item, "bad_record", f"not a plain file (tar type {info.type!r})")
    if at + info.size > end:
        return Fault(item, "truncated", f"the tar ends early: {end - at} of the member's {info.size} bytes are there")
    name = plain(info.name)
    if name in seen:
        return Fault(item, "bad_record", "a second member of this name; the first one counts")
    seen.add(name)
    return Member(name, at, info.size)


def _extension(kind: bytes, data: bytes) -> dict[str, str]:
    """Parse the path and size of the next member from a GNU long name or a pax header."""
    if kind == b"L":
        return {"path": data.split(b"\0")[0].decode("utf-8", "surrogateescape")}
    found: dict[str, str] = {}
    while kind == b"x" and data:
        length, _, _ = data.partition(b" ")
        if not (length.isdigit() and len(length) < 6 and 0 < int(length) <= len(data)):
            break
        record, data = data[len(length) + 1 : int(length) - 1], data[int(length) :]
        name, _, value = record.partition(b"=")
        if name in (b"path", b"size"):
            found[name.decode()] = value.decode("utf-8", "surrogateescape")
    return found


def is_unsafe(name: str) -> bool:
    """Return whether a member's name is empty, absolute, leaves the archive, or names a drive."""
    parts = name.replace("\\", "/").split("/")
    return not name or "\0" in name or not parts[0] or ".." in parts or parts[0].endswith(":")


def plain(name: str) -> str:
    """Remove './' parts and doubled slashes from a member's name."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))
