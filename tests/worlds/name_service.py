"""A DNS resolver with fixed answers."""

import socket

from aiohttp.abc import ResolveResult


class Always:
    """Resolver that answers every name with the same addresses, and counts the calls in ``n``."""

    def __init__(self, addresses: tuple[str, ...]) -> None:
        self.addresses = addresses
        self.n = 0

    def __call__(self, host: str, port: int, family: socket.AddressFamily) -> list[ResolveResult]:
        self.n += 1
        kinds = {a: socket.AF_INET6 if ":" in a else socket.AF_INET for a in self.addresses}
        return [
            ResolveResult(hostname=host, host=address, port=port, proto=0, flags=0, family=kind)
            for address, kind in kinds.items()
        ]
