"""Decide which network addresses a fetch may contact: public addresses, and networks that the operator allows.

Lists of links are untrusted. Without this check a link could make the fetcher read services of our own network
(server-side request forgery). The check reads the numeric address, never the host name or the way it is written.
"""

import ipaddress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# IANA's special-purpose registries of IPv4 and IPv6 addresses. The list is written out because `is_global` of the
# standard library differs between Python releases.
CLOSED_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12", "192.0.0.0/24",
        "192.0.2.0/24", "192.31.196.0/24", "192.52.193.0/24", "192.88.99.0/24", "192.168.0.0/16", "192.175.48.0/24",
        "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4",
    )
)  # fmt: skip
# IANA allocates only 2000::/3 for global use; these networks in it are not public (2001::/23: Teredo and ORCHID).
OPEN_6 = IPv6Network("2000::/3")
CLOSED_6 = tuple(
    IPv6Network(network)
    for network in ("2001::/23", "2001:db8::/32", "2620:4f:8000::/48", "3fff::/20", "3ffe::/16", "5f00::/16")
)
SIX_TO_FOUR = IPv6Network("2002::/16")
# On IPv6-only networks, DNS64 maps IPv4 hosts to this prefix (RFC 6052): the last 32 bits are the IPv4 address.
TRANSLATED = IPv6Network("64:ff9b::/96")


class BlockedAddress(OSError):
    """A network address that must not be contacted; an OSError, as a refused connection is."""


@dataclass(frozen=True)
class AllowedAddresses:
    """Check whether a network address may be contacted: public ones, and those in ``allowed``.

    ``allowed`` lists networks in CIDR notation (else ValueError) that may be contacted although they are not public.
    """

    allowed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "_networks", tuple(ipaddress.ip_network(text) for text in self.allowed))

    def check(self, text: str) -> None:
        """Raise BlockedAddress unless ``text``, a numeric address as sockets write it, may be contacted."""
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            raise BlockedAddress(f"'{text}' is no network address") from None
        inner = embedded_ipv4(address)
        networks: tuple[Network, ...] = self._networks  # type: ignore[attr-defined]
        if any(inner in network for network in networks if network.version == inner.version):
            return
        if "%" in text or not is_public(inner):
            raise BlockedAddress(
                f"{text} is not a public address; to allow its network: pairmill run RECIPE --retry blocked_address "
                "--allow-address CIDR"
            )


def numeric(host: str) -> str:
    """Return the host of a `request_address` if it is a numeric address, else ''.

    `request_address` has written short forms such as "127.1" and "0x7f.1" in full.
    """
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return ""


def embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address embedded in an IPv6 address (mapped, translated, 6to4), else the address itself."""
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in TRANSLATED:
            return IPv4Address(int(address) & 0xFFFFFFFF)
        if address in SIX_TO_FOUR and address.sixtofour is not None:
            return address.sixtofour
    return address


def is_public(address: Address) -> bool:
    """Return whether ``address``, as returned by `embedded_ipv4`, is reachable from the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in CLOSED_4)
    return address in OPEN_6 and not any(address in network for network in CLOSED_6)
