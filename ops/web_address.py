"""Resolve and compare web addresses as a browser does (WHATWG URL), by the library ada.

Of 40 spellings resolved or requested as the standard says: ada-url 4.0 40, can-ada 3.0 and url-py 39, yarl 24 (it
writes %3A as ':' and %2C as ',', which breaks signatures), urllib 17.
"""

import re
import unicodedata
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes, urldefrag, urljoin

from ada_url import URL, join_url

ESCAPES = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# Escaped, these letters are data; bare, they divide an address.
DIVIDING = frozenset("%/?#&=+;\\")


# Most relative addresses have these letters only, which no rule of reading changes.
PLAIN = re.compile(r"(?!//)[A-Za-z0-9_./-]+")
WEB = ("http://", "https://")

# Longer addresses are rare. Sixteen thousand could take gigabytes, and Unicode's normal forms take quadratic time.
MOST_LETTERS = 2048


def request_address(written: str, base: str = "") -> str:
    """Return the address, without its fragment, that a browser requests for ``written`` on a page at ``base``.

    Percent-encoded letters stay as they are written, which signatures of addresses rely on. Raises ValueError if
    ``written`` is not an address.
    """
    parse = _parse if len(written) + len(base) <= MOST_LETTERS else _parse.__wrapped__
    return parse(written, base)


@lru_cache(maxsize=16_384)  # a site shows its icons on every page
def _parse(written: str, base: str) -> str:
    """Return the `request_address`."""
    try:
        href = join_url(base, written) if base else URL(written).href
    except ValueError:
        raise ValueError(f"'{written[:100]}' is no address") from None
    return href.partition("#")[0]


def absolute_address(written: str, base: str = "") -> str:
    """Return ``written`` as an absolute address without fragment, '' if it is not an address.

    Its spelling is kept if a browser reads it as the same address.
    """
    try:
        if PLAIN.fullmatch(written) and base.startswith(WEB) and request_address(base) == base:
            return request_address(written, base)
        asked = request_address(written.encode("utf-8", "replace").decode(), base)
        if asked == written and written.startswith(WEB):
            return written
        plain = urldefrag(urljoin(base, written.strip())).url.encode("utf-8", "replace").decode()
        return plain if plain == asked or request_address(plain) == asked else asked
    except ValueError:
        return ""


def address_key(written: str) -> str:
    """Return one canonical form for all spellings of an address, to compare by; ``written`` itself if it is no address.

    It is the address that a browser requests, with each percent-encoded letter that separates no parts decoded, in
    Unicode's form NFC up to MOST_LETTERS letters.
    """
    try:
        asked = request_address(written)
    except ValueError:
        return written
    if "%" not in asked:
        return asked
    decoded = ESCAPES.sub(_decode, asked)
    return unicodedata.normalize("NFC", decoded) if len(asked) <= MOST_LETTERS else decoded


def _decode(found: re.Match[str]) -> str:
    """Decode a run of percent-encoded bytes, except letters that divide an address, and bytes that are not UTF-8."""
    try:
        letters = unquote_to_bytes(found[0]).decode()
    except UnicodeDecodeError:
        return found[0].upper()
    return "".join(quote(letter, safe="") if letter in DIVIDING else letter for letter in letters)
