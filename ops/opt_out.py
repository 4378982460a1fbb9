"""Read the directives with which owners exclude their pages and pictures from datasets."""

import re
from collections.abc import Iterable

AGENT = "pairmill"
# img2dataset heeds all but `none`.
OPT_OUT = frozenset(("noai", "noimageai", "noindex", "noimageindex", "none"))
WORD = re.compile(r"([^\s,;:]+)(\s*:)?")


def find_opt_out(tags: Iterable[str]) -> str:
    """Return the first directive that forbids use, among values of ``X-Robots-Tag`` or ``<meta name="robots">``, or ''.

    ``none`` means noindex and nofollow. Directives after another robot's name ("otherbot: noindex") do not count.
    """
    for value in tags:
        about_us, is_value = True, False
        for word, colon in WORD.findall(value.lower()):
            if is_value:
                is_value = False
            elif colon and ("_" in word or word.startswith("max-")):
                is_value = True  # a directive with a value, such as "unavailable_after: DATE"
            elif colon and not word[0].isdigit():  # a robot's name, no time of day
                about_us = word in ("*", AGENT)
            elif about_us and word in OPT_OUT:
                return word
    return ""
