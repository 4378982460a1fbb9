"""Parse one HTML page, however broken its bytes, and read its title, metadata and base address."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pairmill.ops.read.page.charset import decode_text

# libxml2 compares each attribute with those before it: 30,000 in one tag take 0.6 s, 200,000 take minutes. Comparisons
# are counted only in pages longer than this many characters, in the text between '<' and '>', without quoted values.
MANY_ATTRIBUTES = 200_000
# A page is in memory as bytes, text and tree at once. No page of Common Crawl is larger than 5 MB; saved pages with
# embedded images reach 50 MB. An element or an attribute takes 140 bytes of the tree.
MOST_BYTES = 48 * 2**20
MOST_NODES = 2_000_000
MOST_COMPARED = 1_000_000_000
TAG = re.compile(r"""<[a-zA-Z](?:[^>=]++|=\s*+(?:"[^"]*+"|'[^']*+')|=)*+""")
ATTRIBUTE = re.compile(r"""[\s/"'][^\s/>"'=]""")
QUOTED = re.compile(r"""=\s*+(?:"[^"]*+"|'[^']*+')""")


SAID = frozenset(("description", "keywords", "author", "og:title", "og:description", "og:url", "date"))
SAID |= {"license", "copyright", "rights", "dc.rights", "dcterms.rights", "dcterms.license", "dc.date", "dcterms.date"}
SAID |= {"article:published_time", "article:modified_time"}


@dataclass
class Page:
    """A parsed page; ``root`` is an lxml element, or None if the page is empty or not parsed.

    ``broken`` says why markup is lost, '' if none is. ``n_bad`` of ``n_letters`` characters could not be decoded.
    ``too_large`` says why the page was not parsed, '' if it was.
    """

    root: Any
    broken: str
    charset: str
    n_bad: int
    n_letters: int
    too_large: str = ""


def parse(data: bytes) -> Page:
    """Parse a page into a tree, however broken the markup. Never raises."""
    if len(data) > MOST_BYTES:
        return Page(None, "", "", 0, 0, f"a page of {len(data)} bytes; at most {MOST_BYTES} are parsed")
    decoded = decode_text(data)
    if len(decoded.text) > MOST_NODES and _nodes(decoded.text) > MOST_NODES:
        return Page(None, "", decoded.charset, 0, 0, f"a page of over {MOST_NODES} elements and attributes")
    if len(decoded.text) > MANY_ATTRIBUTES and _compared(decoded.text) > MOST_COMPARED:
        return Page(None, "tags of too many attributes", decoded.charset, decoded.n_bad, len(decoded.text))
    # Pass UTF-8 bytes, so that the parser ignores the declaration inside the page.
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    text = decoded.text.encode("utf-8", "replace")
    try:
        root = etree.fromstring(text, parser) if text.strip() else None
        # The parser repairs broken nesting; only errors that stop it are fatal (such as elements nested 2,048 deep).
        broken = next((entry.message for entry in parser.error_log if entry.level_name == "FATAL"), "")
    except etree.LxmlError as error:
        root, broken = None, str(error)
    return Page(root, broken, decoded.charset, decoded.n_bad, len(decoded.text))


def _nodes(text: str) -> int:
    """Count an upper bound of the elements and attributes in ``text``."""
    n = text.count("<")
    if n <= MOST_NODES:
        n += sum(1 for tag in TAG.finditer(text) for _ in ATTRIBUTE.finditer(QUOTED.sub("='", tag[0])))
    return n


def _compared(text: str) -> int:
    """Estimate how many pairs of attributes the parser compares to find duplicates.

    Tags of up to 5,000 characters are not counted.
    """
    long = (tag[0] for tag in TAG.finditer(text) if len(tag[0]) > 5000)
    return sum(len(ATTRIBUTE.findall(QUOTED.sub("='", tag))) ** 2 for tag in long)


def title(root: Any) -> str:
    """Return the text of <title>, else of the first heading, else ''."""
    for tag in ("title", "h1"):
        for element in root.iter(tag):
            words = " ".join("".join(element.itertext()).split())
            if words:
                return words
    return ""


def metadata(root: Any) -> dict[str, object]:
    """Collect the page's metadata: language, description, keywords, author, licence, dates, canonical address."""
    found: dict[str, object] = {}
    if root.get("lang"):
        found["language"] = root.get("lang")
    for element in root.iter("meta"):
        name = (element.get("name") or element.get("property") or "").lower()
        if name in SAID and element.get("content"):
            found.setdefault(name, element.get("content"))
    for element in root.iter("link", "a"):
        kinds = (element.get("rel") or "").lower().split()
        for kind in ("canonical", "license"):
            if kind in kinds and element.get("href"):
                found.setdefault(kind, element.get("href"))
    return found


def base(root: Any) -> str:
    """Return the href of the page's <base>, '' if there is none."""
    return next((element.get("href") for element in root.iter("base") if element.get("href")), "")
