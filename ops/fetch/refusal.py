"""Refuse to fetch what an owner (``X-Robots-Tag``) or the user (a list of hosts) has excluded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

AGENT = "pairmill"
# Directives with which owners exclude their images from datasets; img2dataset heeds the same four.
OPT_OUT = frozenset(("noai", "noimageai", "noindex", "noimageindex"))


def opted_out(tags: Iterable[str]) -> str:
    """Return the directive in ``X-Robots-Tag`` header values that forbids the fetch, or ''.

    ``none`` means noindex and nofollow. Directives after another robot's name ("otherbot: noindex") do not count.
    """
    for value in tags:
        about_us = True
        for part in value.lower().split(","):
            name, colon, rest = part.partition(":")
            # A directive such as "unavailable_after: DATE" has a value; any other text before a colon is a robot's
            # name.
            if colon and "_" not in name and not name.strip().startswith("max-"):
                about_us, part = name.strip() in ("*", AGENT), rest
            directive = part.strip()
            if about_us and (directive in OPT_OUT or directive == "none"):
                return directive
    return ""


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
        """Return the entry that bans ``url``, or ''."""
        hosts: frozenset[str] = self._hosts  # type: ignore[attr-defined]
        prefixes: tuple[str, ...] = self._prefixes  # type: ignore[attr-defined]
        host = (urlsplit(url).hostname or "").strip(".")
        while host:
            if host in hosts:
                return host
            host = host.partition(".")[2]
        lower = url.lower()
        return next((prefix for prefix in prefixes if lower.startswith(prefix)), "")
