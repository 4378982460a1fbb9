"""Read an answer's body only as far as it may be a picture that is taken."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator, Callable

import aiohttp

from pairmill.ops.fault import Fault
from pairmill.ops.header_number import whole_number
from pairmill.ops.image.header import format_of, inspect

# Enough to know any format by; an HTML page behind a picture's address is not read to its end.
ENOUGH = 512
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}


async def read_body(response: aiohttp.ClientResponse, max_bytes: int, take: Callable[[int], None]) -> bytes | Fault:
    """Read at most ``max_bytes`` that begin as an image does; else a Fault without an item.

    ``take`` is called with the bytes of each piece, and may raise to end it.

    A body that is packed although that was not asked for is unpacked as it comes, so a few bytes cannot grow beyond the
    limit. Raises what the connection raises.
    """
    length = response.headers.get("Content-Length", "")
    if (announced := whole_number(length)) is not None and announced > max_bytes:
        return Fault("", "too_large", f"{announced} bytes announced; at most {max_bytes} are taken")
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if encoding not in ("identity", "", *PACKED):
        return Fault("", "undecodable", f"the answer is packed as {encoding[:40]!r}, which was not asked for")
    chunks = response.content.iter_any()
    if encoding in PACKED:
        chunks = _unpacked(chunks, PACKED[encoding], max_bytes + 1)
    data = bytearray()
    known = False
    try:
        async for chunk in chunks:
            take(len(chunk))
            data += chunk
            if len(data) > max_bytes:
                return Fault("", "too_large", f"more than {max_bytes} bytes")
            if not known and len(data) >= ENOUGH:
                known = True
                if not format_of(bytes(data[:ENOUGH])):
                    break
    except zlib.error as error:
        return Fault("", "undecodable", f"a {encoding} body that cannot be unpacked: {error}")
    if not data or not format_of(bytes(data[:ENOUGH])):
        found = inspect(bytes(data), 1, max_bytes)
        return found if isinstance(found, Fault) else Fault("", "not_an_image", "no known image format")
    return bytes(data)


async def _unpacked(chunks: AsyncIterator[bytes], window: int, limit: int) -> AsyncIterator[bytes]:
    inflate = zlib.decompressobj(window)
    left = limit
    async for chunk in chunks:
        while chunk and left > 0:
            piece = inflate.decompress(chunk, left)
            chunk = inflate.unconsumed_tail
            left -= len(piece)
            yield piece
            if inflate.eof:
                return
