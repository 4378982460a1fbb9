"""Read the directives with which owners exclude their pages and pictures from datasets."""

from __future__ import annotations

import re
from collections.abc import Iterable

AGENT = "pairmill"
# img2dataset heeds all but `none`.
OPT_OUT = frozenset(("noai", "noimageai", "noindex", "noimageindex", "none"))


def opted_out(tags: Iterable[str]) -> str:
    """Return the directive that forbids the use, among values of ``X-Robots-Tag`` or ``<meta name="robots">``, or ''.

    ``none`` means noindex and nofollow. Directives after another robot's name ("otherbot: noindex") do not count.
    """
    for value in tags:
        about_us = True
        for part in re.split("[,;]", value.lower()):
            name, colon, rest = part.partition(":")
            if colon and ("_" in name or name.strip().startswith("max-")):
                continue  # a directive with a value, such as "unavailable_after: DATE"
            if colon:  # a robot's name
                about_us, part = name.strip() in ("*", AGENT), rest
            for directive in part.split():
                if about_us and directive in OPT_OUT:
                    return directive
    return ""
