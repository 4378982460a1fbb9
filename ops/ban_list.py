"""Match items against a ban list: pictures by content or perceptual hash, documents, addresses and hosts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from pairmill.ops.fault import Fault

# Bits in which a copy in another size, format or quality may differ from a banned hash (recipes group by 4 of 64 too).
NEAR_BITS = 4
_SIDE = 224


@dataclass(frozen=True)
class Banned:
    """Match URLs against banned hosts and URL prefixes.

    An entry without a slash is a host, with its subdomains (``example.org``); any other entry is a prefix
    (``https://example.org/private/``). Case does not matter.
    """

    entries: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        entries = {entry.strip().lower() for entry in self.entries if entry.strip()}
        object.__setattr__(self, "_hosts", frozenset(e.strip(".") for e in entries if "/" not in e))
        object.__setattr__(self, "_prefixes", tuple(sorted(e for e in entries if "/" in e)))

    def entry(self, url: str) -> str:
        """Return the banned host or prefix that matches ``url``, '' if none does."""
        hosts: frozenset[str] = self._hosts  # type: ignore[attr-defined]
        prefixes: tuple[str, ...] = self._prefixes  # type: ignore[attr-defined]
        try:
            host = (urlsplit(url).hostname or "").strip(".")
        except ValueError:  # such as http://[::1/: no host, and the request will say so
            host = ""
        while host:
            if host in hosts:
                return host
            host = host.partition(".")[2]
        lower = url.lower()
        return next((prefix for prefix in prefixes if lower.startswith(prefix)), "")


@dataclass(frozen=True)
class BanList:
    """Items that must not enter a lake, because they were taken down or banned."""

    pictures: frozenset[str] = frozenset()  # ids: 32 hex digits of the sha256
    documents: frozenset[str] = frozenset()  # ids
    urls: frozenset[str] = frozenset()  # whole addresses
    addresses: Banned = field(default_factory=Banned)  # hosts and beginnings of addresses
    hashes: tuple[int, ...] = ()  # perceptual hashes (uint64), which ban up to NEAR_BITS of Hamming distance

    @staticmethod
    def of_entries(entries: Mapping[str, Collection[str]], hosts: Collection[str] = ()) -> BanList:
        """Return the ban list of a lake's ``entries`` (kind -> values) and of more ``hosts`` or address prefixes."""
        urls = frozenset(each for each in entries["address"] if "/" in each and not each.endswith("/"))
        addresses = Banned((*hosts, *(each for each in entries["address"] if each not in urls)))
        hashes = tuple(sorted(map(int, entries["phash"])))
        whole = urls | frozenset(entries["uri"])
        return BanList(frozenset(entries["picture"]), frozenset(entries["document"]), whole, addresses, hashes)

    def of_document(self, document_id: str, uri: str) -> Fault | None:
        """Return a Fault if the document is banned by id, address or host, else None."""
        if document_id in self.documents:
            return Fault(uri, "banned", "this document was taken down")
        return self.of_address(uri)

    def of_address(self, url: str) -> Fault | None:
        """Return a Fault if the address is banned, itself or by host or prefix, else None."""
        entry = url if url in self.urls else self.addresses.entry(url)
        return Fault(url, "banned", f"the lake's ban list holds '{entry}'") if entry else None

    def of_picture(self, data: bytes, digest: str) -> Fault | None:
        """Return a Fault if the picture is banned by sha256 or near a banned perceptual hash, else None.

        ``digest`` is the picture's content id. The picture is decoded (2 ms) only if there are banned hashes.
        """
        if digest in self.pictures:
            return Fault(digest, "banned", "this picture's sha256 is in the lake's ban list")
        if self.hashes and (found := perceptual_hash(data)) is not None:
            for banned in self.hashes:
                if (found ^ banned).bit_count() <= NEAR_BITS:
                    return Fault(digest, "banned", f"its perceptual hash is within {NEAR_BITS} bits of a banned one")
        return None


def perceptual_hash(data: bytes) -> int | None:
    """Return the 64-bit perceptual hash of an encoded image; None if the image does not decode."""
    from pairmill.ops.image.decode import Decode
    from pairmill.ops.image.phash import PerceptualHash  # torch, 2 s: only where hashes are banned

    pixels = Decode(side=_SIDE)(data)
    return None if isinstance(pixels, Fault) else int(PerceptualHash()({"pixels": [pixels]})["phash"][0])
