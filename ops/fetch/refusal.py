"""Heed who does not want to be fetched: by an answer's ``X-Robots-Tag``, or by the user's list of hosts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

AGENT = "pairmill"
# What owners write to keep their pictures out of datasets; the same four that img2dataset heeds.
OPT_OUT = frozenset(("noai", "noimageai", "noindex", "noimageindex"))


def opted_out(tags: Iterable[str]) -> str:
    """Return the directive of ``X-Robots-Tag`` header values that forbids the fetch, or ''.

    ``none`` stands for noindex, nofollow. Directives behind another robot's name ("otherbot: noindex") do not count.
    """
    for value in tags:
        about_us = True
        for part in value.lower().split(","):
            name, colon, rest = part.partition(":")
            # "unavailable_after: DATE" and the like have a value; what else stands before a colon is a robot's name.
            if colon and "_" not in name and not name.strip().startswith("max-"):
                about_us, part = name.strip() in ("*", AGENT), rest
            directive = part.strip()
            if about_us and (directive in OPT_OUT or directive == "none"):
                return directive
    return ""


@dataclass(frozen=True)
class Banned:
    """Match addresses against hosts (``example.org`` with subdomains) and prefixes (``https://example.org/private/``)."""

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
