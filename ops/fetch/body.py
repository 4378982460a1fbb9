"""Read the body of a response, up to a limit and only while it may be an image."""

import zlib
from collections.abc import AsyncIterator, Callable

import aiohttp

from pairmill.ops.fault import Fault, in_words
from pairmill.ops.header_number import whole_number
from pairmill.ops.image.header import format_of, inspect

# Bytes that identify any format. An HTML page served at an image URL is not read beyond this.
ENOUGH = 512
PACKED = {"gzip": 31, "x-gzip": 31, "deflate": 15}


async def read_body(
    response: aiohttp.ClientResponse, max_bytes: int, take: Callable[[int], None], is_picture: bool = True
) -> bytes | Fault:
    """Read a response body of at most ``max_bytes`` that begins like an image, or return a Fault without item.

    Without ``is_picture`` it may be anything, and what is longer is cut off.

    A compressed body that was not asked for is decompressed chunk by chunk, so that a few bytes cannot expand beyond
    the limit. ``take`` is called with the size of each chunk in bytes, and may raise to stop the read. Raises aiohttp's
    errors of the connection.
    """
    length = response.headers.get("Content-Length", "")
    if (announced := whole_number(length)) is not None and announced > max_bytes and is_picture:
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
            if len(data) > max_bytes and not is_picture:
                break
            if len(data) > max_bytes:
                return Fault("", "too_large", f"more than {max_bytes} bytes")
            if is_picture and not known and len(data) >= ENOUGH:
                known = True
                if not format_of(bytes(data[:ENOUGH])):
                    break
    except zlib.error as error:
        return Fault("", "undecodable", f"a {encoding} body that cannot be unpacked: {in_words(error)}")
    if is_picture and not format_of(bytes(data[:ENOUGH])):
        found = inspect(bytes(data), 1, max_bytes)
        return found if isinstance(found, Fault) else Fault("", "not_an_image", "no known image format")
    return bytes(data[:max_bytes])


async def _unpacked(chunks: AsyncIterator[bytes], window: int, limit: int) -> AsyncIterator[bytes]:
    """Decompress ``chunks`` with zlib's ``window`` bits; stop after ``limit`` bytes of output."""
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
