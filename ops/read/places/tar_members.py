"""Find the members of a tar from their headers alone; no header can exhaust memory or point outside the tar.

Supports POSIX.1-2001 (ustar, pax) and GNU tar, as the standard library and webdataset write them.
"""

import tarfile
from collections.abc import Iterator
from typing import IO, NamedTuple

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.header_number import whole_number

BLOCK = 512
SPARSE = b"S"  # of old GNU tar; newer ones say it in a pax header
REGULAR, LINKS = (b"\0", b"0", b"7"), (b"1", b"2")
# A name or a pax record has some hundred bytes; the standard library would read gigabytes of one into memory.
MAX_EXTENSION = 64 * 1024


class Member(NamedTuple):
    """A regular file in a tar: its path inside the archive with '/', and its bytes' offset and size in the tar.

    The bytes of a sparse file are stored without its holes; its ``offset`` is that of its headers.
    """

    name: str
    offset: int
    size: int
    is_sparse: bool = False

    def read(self, file: IO[bytes]) -> bytes:
        """Return the member's bytes from the open tar ``file``."""
        file.seek(self.offset)
        if not self.is_sparse:
            return file.read(self.size)
        with tarfile.open(fileobj=file, mode="r:") as packed:
            member = packed.next()
            found = packed.extractfile(member) if member else None
            return found.read() if found else b""


def members(file: IO[bytes], uri: str, at_most: int | None = None) -> Iterator[Member | Fault]:
    """Yield every member of a tar in the order of the file, at most ``at_most``.

    A Fault stands for each member that is not a plain file, and for the rest of a cut or damaged tar. Member names are
    safe: neither absolute nor with '..'. Of two members with one name the first counts.
    """
    end = file.seek(0, 2)
    at, seen, extra, begins = 0, set(), {}, 0
    while at_most is None or len(seen) < at_most:
        file.seek(at)
        header = file.read(BLOCK)
        if len(header) < BLOCK:
            detail = "no end mark" if at == end else f"cut inside the header at byte {at}"
            yield Fault(f"{uri}#byte={at}", "truncated", f"the tar ends early: {detail}")
            return
        if not any(header):
            return
        if (size := _size(header, extra)) is None:
            yield Fault(f"{uri}#byte={at}", "bad_record", "no tar header here; what follows is lost")
            return
        at += BLOCK
        if (kind := header[156:157]) in b"LxKg":
            if size > MAX_EXTENSION:
                yield Fault(f"{uri}#byte={at}", "bomb", f"a header of {size} bytes; what follows is lost")
                return
            extra |= _extension(kind, file.read(size))
        elif kind == SPARSE or "sparse" in extra:
            found, after = _sparse(file, uri, begins, size, seen)
            yield found
            extra = {}
            begins = at = after or at + -(-size // BLOCK) * BLOCK
            continue
        else:
            if found := _member(uri, header, at, size, end, extra, seen):
                yield found
            if at + size > end:
                return
            extra, begins = {}, at + -(-size // BLOCK) * BLOCK
        at += -(-size // BLOCK) * BLOCK


def _sparse(file: IO[bytes], uri: str, begins: int, stored: int, seen: set) -> tuple[Member | Fault, int]:
    """Find the sparse file of ``stored`` bytes with headers from ``begins`` on; return it and its end, 0 if unknown."""
    file.seek(begins)
    try:
        with tarfile.open(fileobj=file, mode="r:") as packed:
            info, end = packed.next(), packed.offset
    except (tarfile.TarError, ValueError, EOFError, OverflowError, MemoryError, LookupError, RecursionError) as error:
        return Fault(f"{uri}#byte={begins}", "bad_record", f"a sparse file that cannot be read: {in_words(error)}"), 0
    name = plain(info.name) if info else ""
    if info is None or is_unsafe(info.name) or name in seen or end > file.seek(0, 2) or (stored and not info.size):
        return Fault(f"{uri}#byte={begins}", "bad_record", "a sparse file that is cut, or has no name of its own"), 0
    seen.add(name)
    return Member(name, begins, info.size, is_sparse=True), end


def _member(uri: str, header: bytes, at: int, size: int, end: int, extra: dict, seen: set) -> Member | Fault | None:
    """Validate one member; return None for a folder and a Fault for a member that cannot be read."""
    try:
        name = extra.get("path") or _name(header)
        name = name.decode() if isinstance(name, bytes) else name
    except UnicodeDecodeError:
        return Fault(f"{uri}#byte={at}", "bad_encoding", "the member's name is not UTF-8")
    item, kind = f"{uri}#{name}", header[156:157]
    if kind == b"5" or (kind == b"\0" and name.endswith("/")):  # the second is how tars of before 1988 say it
        return None
    if is_unsafe(name):
        return Fault(item, "unsafe_path", "the member's name leaves the archive")
    if kind in LINKS:
        return Fault(item, "unsafe_path", "a link inside an archive is not followed")
    if kind not in REGULAR:
        return Fault(item, "bad_record", f"not a plain file (tar type {kind!r})")
    if at + size > end:
        return Fault(item, "truncated", f"the tar ends early: {end - at} of the member's {size} bytes are there")
    name = plain(name)
    if name in seen:
        return Fault(item, "bad_record", "a second member of this name; the first one counts")
    seen.add(name)
    return Member(name, at, size)


def _size(header: bytes, extra: dict[str, bytes | str]) -> int | None:
    """Parse the member's size in bytes; return None if the block is not a header (its checksum is wrong)."""
    total = sum(header) - sum(header[148:156]) + 8 * 32
    if _number(header[148:156]) != total:
        return None
    size = _number(header[124:136])
    stated = str(extra.get("size", ""))
    if stated and header[156:157] not in b"LxKg":
        size = whole_number(stated)
    return size if size is not None and size >= 0 else None


def _number(field: bytes) -> int | None:
    """Parse octal digits, or GNU's base 256 for numbers too large for octal; None if invalid."""
    if field[0] in (0x80, 0xFF):
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    try:
        return int(field.split(b"\0")[0].strip() or b"0", 8)
    except ValueError:
        return None


def _name(header: bytes) -> bytes:
    """Return the member's path; ustar splits a long path into a prefix and a name."""
    name, prefix = header[:100].split(b"\0")[0], header[345:500].split(b"\0")[0]
    return prefix + b"/" + name if prefix and header[257:263] == b"ustar\0" else name


def _extension(kind: bytes, data: bytes) -> dict[str, bytes | str]:
    """Parse the path and size of the next member from a GNU long name or a pax header."""
    if kind == b"L":
        return {"path": data.split(b"\0")[0]}
    found: dict[str, bytes | str] = {}
    while kind == b"x" and data:
        length, _, _ = data.partition(b" ")
        if not (length.isdigit() and len(length) < 6 and 0 < int(length) <= len(data)):
            break
        record, data = data[len(length) + 1 : int(length) - 1], data[int(length) :]
        name, _, value = record.partition(b"=")
        if name.startswith(b"GNU.sparse."):
            found["sparse"] = ""
        if name in (b"path", b"size"):
            found[name.decode()] = value if name == b"path" else value.decode("latin-1")
    return found


def is_unsafe(name: str) -> bool:
    """Return whether a member's name is empty, absolute, leaves the archive, or names a drive."""
    parts = name.replace("\\", "/").split("/")
    return not name or "\0" in name or not parts[0] or ".." in parts or parts[0].endswith(":")


def plain(name: str) -> str:
    """Return a member's name without './' parts and doubled slashes."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))
