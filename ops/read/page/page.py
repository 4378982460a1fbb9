"""Parse one HTML page, however broken its bytes, and read what it says about itself."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pairmill.ops.read.page.charset import decode_text

# libxml2 compares each attribute with those before it: 30,000 in one tag take 0.6 s, 200,000 minutes. Counted only in
# pages that are large enough, over what stands between '<' and '>', quoted values left out.
MANY_ATTRIBUTES = 200_000
# A page is held as bytes, text and a tree at once. Of Common Crawl's none has over 5 MB; pages that are saved with
# their pictures in them reach 50. An element or an attribute takes 140 bytes of the tree.
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
    """``root`` is lxml's element, None when the page is empty; ``broken`` says why markup is lost, '' when none is.

    ``n_bad`` of ``n_letters`` characters could not be decoded. ``too_large`` says why it is not parsed, '' when it is.
    """

    root: Any
    broken: str
    charset: str
    n_bad: int
    n_letters: int
    too_large: str = ""


def parse(data: bytes) -> Page:
    """Parse a page into its tree, however broken the markup. Never raises."""
    if len(data) > MOST_BYTES:
        return Page(None, "", "", 0, 0, f"a page of {len(data)} bytes; at most {MOST_BYTES} are parsed")
    decoded = decode_text(data)
    if len(decoded.text) > MOST_NODES and _nodes(decoded.text) > MOST_NODES:
        return Page(None, "", decoded.charset, 0, 0, f"a page of over {MOST_NODES} elements and attributes")
    if len(decoded.text) > MANY_ATTRIBUTES and _compared(decoded.text) > MOST_COMPARED:
        return Page(None, "tags of too many attributes", decoded.charset, decoded.n_bad, len(decoded.text))
    # Given as UTF-8 bytes, so that no declaration inside the page is asked a second time.
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    text = decoded.text.encode("utf-8", "replace")
    try:
        root = etree.fromstring(text, parser) if text.strip() else None
        # Broken nesting is mended; only what stops the parser is fatal (elements nested 2,048 deep, for one).
        broken = next((entry.message for entry in parser.error_log if entry.level_name == "FATAL"), "")
    except etree.LxmlError as error:
        root, broken = None, str(error)
    return Page(root, broken, decoded.charset, decoded.n_bad, len(decoded.text))


def _nodes(text: str) -> int:
    """Count elements and attributes, as many as there can be."""
    n = text.count("<")
    if n <= MOST_NODES:
        n += sum(1 for tag in TAG.finditer(text) for _ in ATTRIBUTE.finditer(QUOTED.sub("='", tag[0])))
    return n


def _compared(text: str) -> int:
    """Count the pairs of attributes that a parser has to compare for doubles; tags of some hundred do not count."""
    long = (tag[0] for tag in TAG.finditer(text) if len(tag[0]) > 5000)
    return sum(len(ATTRIBUTE.findall(QUOTED.sub("='", tag))) ** 2 for tag in long)


def title(root: Any) -> str:
    """Find the <title>, else the first heading, else ''."""
    for tag in ("title", "h1"):
        for element in root.iter(tag):
            words = " ".join("".join(element.itertext()).split())
            if words:
                return words
    return ""


def metadata(root: Any) -> dict[str, object]:
    """Collect what a page says about itself: language, description, keywords, author, licence, dates, address."""
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
    """Find the href of the page's <base>; '' when it has none."""
    return next((element.get("href") for element in root.iter("base") if element.get("href")), "")
