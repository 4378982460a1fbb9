"""Match items against a ban list: pictures by bytes or perceptual hash, documents, addresses and hosts."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec
from urllib.parse import urlsplit

import numpy as np

from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.fault import Fault

# Bits in which a copy in another size, format or quality may differ from a banned hash (recipes group by 4 of 64 too).
NEAR_BITS = 4
# PDQ's own limits: bits of 256, quality of 100, and pixels of the side to which it reduces a picture first.
PDQ_BITS, PDQ_QUALITY, _PDQ_SIDE = 31, 50, 512
_SIDE = 224
LISTS = {"sha256": 64, "md5": 32, "pdq": 64, "phash": 16}  # kinds of hashes in lists, and their hex digits


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
    md5s: frozenset[str] = frozenset()  # 32 hex digits
    pdqs: tuple[str, ...] = ()  # 64 hex digits, which ban up to PDQ_BITS

    @staticmethod
    def of_entries(entries: Mapping[str, Collection[str]], hosts: Collection[str] = ()) -> "BanList":
        """Return the ban list of a lake's ``entries`` (kind -> values) and of more ``hosts`` or address prefixes.

        Raises PairmillError if it has PDQ hashes and the package `pdqhash` is not installed.
        """
        if entries["pdq"] and not find_spec("pdqhash"):
            raise PairmillError("the lake's ban list has PDQ hashes, which the package pdqhash matches: pip install "
                                "'pairmill[pdq]'")  # fmt: skip
        urls = frozenset(each for each in entries["address"] if "/" in each and not each.endswith("/"))
        addresses = Banned((*hosts, *(each for each in entries["address"] if each not in urls)))
        hashes = tuple(sorted(map(int, entries["phash"])))
        whole, md5s, pdqs = urls | frozenset(entries["uri"]), frozenset(entries["md5"]), tuple(sorted(entries["pdq"]))
        pictures, documents = frozenset(entries["picture"]), frozenset(entries["document"])
        return BanList(pictures, documents, whole, addresses, hashes, md5s, pdqs)

    @cached_property
    def _hashes(self) -> np.ndarray:
        """The perceptual hashes as (n, 1) uint64."""
        return np.array(self.hashes, np.uint64)[:, None]

    @cached_property
    def _pdqs(self) -> np.ndarray:
        """The PDQ hashes as (n, 4) uint64."""
        return np.frombuffer(bytes.fromhex("".join(self.pdqs)), np.uint64).reshape(-1, 4)

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
        """Return a Fault if the picture is banned by its bytes, or near a banned perceptual hash, else None.

        ``digest`` is the picture's content id. The picture is decoded only if there are banned perceptual hashes: 4 ms
        and 1 ms for each million of them, for PDQ 17 ms and 18 ms.
        """
        if digest in self.pictures:
            return Fault(digest, "banned", "this picture's sha256 is in the lake's ban list")
        if self.md5s and hashlib.md5(data, usedforsecurity=False).hexdigest() in self.md5s:
            return Fault(digest, "banned", "this picture's MD5 is in the lake's ban list")
        found = perceptual_hash(data) if self.hashes else None
        if found is not None and _nearest(self._hashes, np.array([found], np.uint64)) <= NEAR_BITS:
            return Fault(digest, "banned", f"its perceptual hash is within {NEAR_BITS} bits of a banned one")
        pdq = pdq_hash(data) if self.pdqs else None
        if pdq is not None and _nearest(self._pdqs, np.frombuffer(bytes.fromhex(pdq), np.uint64)) <= PDQ_BITS:
            return Fault(digest, "banned", f"its PDQ hash is within {PDQ_BITS} bits of a banned one")
        return None


def _nearest(hashes: np.ndarray, found: np.ndarray) -> int:
    """Return the least Hamming distance of ``found`` (words,) from ``hashes`` (n, words), all uint64."""
    return int(np.bitwise_count(hashes ^ found).sum(axis=1, dtype=np.uint16).min())


def read_hashes(lines: Iterable[str], kind: str) -> list[tuple[str, str]]:
    """Return the entries (kind, value) of a ban list of one of the kinds LISTS: a line has a hash, and maybe more.

    Text behind a comma or space, empty lines and those that begin with # are ignored. Raises PairmillError for any
    other line, naming its number.
    """
    is_hash, found = re.compile(rf"[0-9a-f]{{{LISTS[kind]}}}").fullmatch, []
    for number, line in enumerate(lines, 1):
        value = re.split(r"[\s,;]", line.strip().lstrip("\ufeff"), maxsplit=1)[0].lower()
        if value and not value.startswith("#"):
            if not is_hash(value):
                raise PairmillError(f"line {number}: no {kind} of {LISTS[kind]} hex digits. Mend the list or --kind; "
                                    "nothing was imported.")  # fmt: skip
            value = value[:32] if kind == "sha256" else str(int(value, 16)) if kind == "phash" else value
            found.append(("picture" if kind == "sha256" else kind, value))
    return list(dict.fromkeys(found))


def pdq_hash(data: bytes) -> str | None:
    """Return the PDQ hash of an encoded image in 64 hex digits; None if it does not decode or is of low quality."""
    import pdqhash  # pyright: ignore[reportMissingImports]

    from pairmill.ops.image.decode import Decode

    if isinstance(pixels := Decode(side=_PDQ_SIDE).preview(data), Fault):
        return None
    bits, quality = pdqhash.compute(pixels)
    return np.packbits(bits.astype(bool)).tobytes().hex() if quality >= PDQ_QUALITY else None


def perceptual_hash(data: bytes) -> int | None:
    """Return the 64-bit perceptual hash of an encoded image; None if the image does not decode."""
    from pairmill.ops.image.decode import Decode
    from pairmill.ops.image.phash import PerceptualHash  # torch, 2 s: only where hashes are banned

    pixels = Decode(side=_SIDE)(data)
    return None if isinstance(pixels, Fault) else int(PerceptualHash()({"pixels": [pixels]})["phash"][0])
