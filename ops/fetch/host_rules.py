"""Read what a host's own files say of fetching: robots.txt, the TDM Reservation Protocol's file, and ai.txt."""

import json
import re
from typing import Any

from protego import Protego

from pairmill.ops.opt_out import AGENT

ROBOTS, TDM, AI = FILES = ("/robots.txt", "/.well-known/tdmrep.json", "/ai.txt")
MOST_BYTES = 500_000  # RFC 9309, section 2.5: at least so many are parsed
# Protego's patterns backtrack: a rule's time grows with the power of its stars, so that it ends at the fourth.
_STARS = re.compile(r"^(\s*(?:dis)?allow\s*:(?:[^*\n]*\*){3})[^*\n]*\*.*", re.IGNORECASE | re.MULTILINE)


def refused(file: str, said: str, urls: list[str]) -> list[str]:
    """Return those of one host's ``urls`` that its ``file`` (of FILES) forbids to our agent; [] for other content."""
    rules = _rules(file, said)
    return [url for url in urls if not rules.can_fetch(url, AGENT)]


def stated_delay(said: str) -> float:
    """Return the seconds between two requests that a robots.txt asks of our agent, 0 without any."""
    return float(_rules(ROBOTS, said).crawl_delay(AGENT) or 0)


def _rules(file: str, said: str) -> Any:
    """Parse a file; the other files' entries become rules of robots.txt, of which the longest counts."""
    if file == TDM:
        try:
            entries = json.loads(said)
        except (ValueError, RecursionError):
            entries = []
        given = [each for each in entries if isinstance(each, dict)] if isinstance(entries, list) else []
        reserved = (("Dis" if str(each.get("tdm-reservation")) == "1" else "") for each in given)
        said = "\n".join(
            f"{dis}allow: {' '.join(str(each.get('location')).split())}"
            for dis, each in zip(reserved, given, strict=True)
        )
    said = said.lstrip("\ufeff")
    if "user-agent" not in said.lower():
        said = f"User-agent: *\n{said}"
    return Protego.parse(_STARS.sub(r"\1", said))
