"""Decompress files as bounded streams: a truncated file yields its readable part, a zip bomb no more than a limit.

Limits come from these ratios: Common Crawl's WARC expand 4 to 6 times, JSON lines up to 30, a gzip of zeros 1,030.
"""

import io
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, NamedTuple

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.read.places.tree import LocalTree, Tree

# Decompressed bytes allowed per compressed byte, beyond the first 16 MB, which are always allowed.
MAX_RATIO = 100
ALWAYS_ALLOWED = 16 * 2**20
# The most bytes that one file may take on a worker's disk.
MAX_UNPACKED = 64 * 2**30
# Up to this size a copy stays in memory, beyond it in a temporary file.
IN_MEMORY = 64 * 2**20
CHUNK = 256 * 1024
FAR_CHUNK = 8 * 2**20


class Inflated(io.RawIOBase):
    """Stream of a decompressed gzip file of one or more members; damage ends the stream and sets ``fault``."""

    def __init__(self, file: IO[bytes], uri: str) -> None:
        self.fault: Fault | None = None
        self._file, self._uri = file, uri
        self._inflate = zlib.decompressobj(wbits=31)
        self._packed, self._in, self._out = b"", 0, 0
        self._at_start = True

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer) -> int:
        """Fill ``buffer`` with decompressed bytes; return their number, 0 at the end or after damage."""
        data = b""
        while not data and self.fault is None:
            if not self._packed:
                self._packed = self._file.read(CHUNK)
                self._in += len(self._packed)
            if not self._packed:
                if not self._at_start:
                    data = self._step(len(buffer))  # what zlib has buffered
                if not data and not self._at_start and self.fault is None:
                    self.fault = Fault(self._uri, "truncated", f"the gzip stream ends early, after {self._in} bytes")
                break
            data = self._step(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _step(self, room: int) -> bytes:
        """Decompress at most ``room`` bytes; set ``fault`` for a damaged stream or a bomb."""
        if self._at_start:
            # gzip files may be padded with zeros after a member.
            self._packed = self._packed.lstrip(b"\0") if self._out else self._packed
            if not self._packed:
                return b""
        self._at_start = False
        try:
            data = self._inflate.decompress(self._packed, room)
        except zlib.error as error:
            self.fault = Fault(self._uri, "bad_record", f"damaged gzip stream near byte {self._in}: {in_words(error)}")
            return b""
        self._packed = self._inflate.unconsumed_tail
        self._out += len(data)
        if self._inflate.eof:
            self._packed = self._inflate.unused_data
            self._inflate = zlib.decompressobj(wbits=31)
            self._at_start = True
        if self._out > min(ALWAYS_ALLOWED + MAX_RATIO * self._in, MAX_UNPACKED):
            detail = f"{self._in} packed bytes give over {self._out}: the rest is not read"
            self.fault = Fault(self._uri, "bomb", detail)
        return data


class SeekableFile(NamedTuple):
    """A file open for random access, its faults, and whether it has the source's own bytes, not a decompressed copy."""

    file: IO[bytes]
    faults: list[Fault]
    as_it_is: bool


@contextmanager
def seekable(tree: Tree, path: str) -> Iterator[SeekableFile]:
    """Open a file for random access, decompressed if its first bytes are gzip's.

    A compressed or remote file is first copied to a temporary file: gzip cannot be read backwards, and S3 would get one
    request per member. Raises the errors of ``tree.open``.
    """
    with tree.open(path) as file:
        packed = is_gzip(file)
        if not packed and isinstance(tree, LocalTree):
            yield SeekableFile(file, [], True)
            return
        inflated = Inflated(file, tree.uri(path))
        with tempfile.SpooledTemporaryFile(IN_MEMORY) as near:
            while data := inflated.read(CHUNK) if packed else file.read(FAR_CHUNK):
                near.write(data)
            near.seek(0)
            faults = [inflated.fault] if inflated.fault else []
            yield SeekableFile(near, faults, not packed)  # pyright: ignore[reportArgumentType]


def head(file: IO[bytes], size: int) -> bytes:
    """Return the first ``size`` bytes of a file, decompressed if it is gzip, to detect its type."""
    return io.BufferedReader(Inflated(file, ""), CHUNK).read(size) if is_gzip(file) else file.read(size)


def is_gzip(file: IO[bytes]) -> bool:
    """Return whether the file begins like gzip; rewind the file to its start."""
    mark = file.read(2)
    file.seek(0)
    return mark == b"\x1f\x8b"
