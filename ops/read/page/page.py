"""Parse one HTML page, however broken its bytes; read its title, metadata and base address; build its document."""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pairmill.ops.fault import Fault
from pairmill.ops.opt_out import AGENT, find_opt_out
from pairmill.ops.read.charset import MAX_BAD, decode_text
from pairmill.ops.read.document import Document, Picture, Text
from pairmill.ops.read.page.image_elements import PictureReference, is_placeholder
from pairmill.ops.read.page.links import NOT_FETCHED

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
ROBOTS = ("robots", AGENT, "x-robots-tag")
SAID = frozenset(("description", "keywords", "author", "og:title", "og:description", "og:url", "date"))
SAID |= {"license", "copyright", "rights", "dc.rights", "dcterms.rights", "dcterms.license", "dc.date", "dcterms.date"}
SAID |= {"article:published_time", "article:modified_time"}


class Page(NamedTuple):
    """A parsed page: its lxml element ``root``, its charset, and how many characters could not be decoded."""

    root: Any
    charset: str
    n_bad: int


def parse(uri: str, data: bytes, content_type: str = "") -> Page | Fault:
    """Parse HTML bytes, sent with this Content-Type header ('' for none), into a tree, however broken the markup.

    Returns a Fault if the bytes cannot be a document. Never raises.
    """
    if len(data) > MOST_BYTES:
        return Fault(uri, "too_large", f"a page of {len(data)} bytes; at most {MOST_BYTES} are parsed")
    text, charset, n_bad = decode_text(data, content_type)
    if len(text) > MOST_NODES and _nodes(text) > MOST_NODES:
        return Fault(uri, "too_large", f"a page of over {MOST_NODES} elements and attributes")
    if n_bad > MAX_BAD * len(text):
        return Fault(uri, "bad_encoding", f"{n_bad} of {len(text)} letters are no text in {charset}")
    root, broken = None, ""
    if len(text) > MANY_ATTRIBUTES and _count_comparisons(text) > MOST_COMPARED:
        broken = "tags of too many attributes"
    elif text.strip():
        # Pass UTF-8 bytes, so that the parser ignores the declaration inside the page.
        parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
        try:
            root = etree.fromstring(text.encode("utf-8", "replace"), parser)
            # The parser repairs broken nesting; only errors that stop it are fatal (elements nested 2,048 deep).
            broken = next((entry.message for entry in parser.error_log if entry.level_name == "FATAL"), "")
        except etree.LxmlError as error:
            broken = str(error)
    if broken:
        return Fault(uri, "bad_record", f"the markup cannot be read to its end: {broken}")
    return Fault(uri, "empty", "a page without content") if root is None else Page(root, charset, n_bad)


def build_document(
    uri: str,
    page: Page,
    items: Sequence[Text | PictureReference],
    read_picture: Callable[[PictureReference, int], Picture],
    about: dict[str, object],
) -> Document:
    """Build a page's document of its ``items`` in reading order and its metadata, entries of which ``about`` replaces.

    ``read_picture`` reads the image of a reference at a position, which counts from 0.
    """
    found: list[Picture | Text] = []
    position = 0
    for item in items:
        if isinstance(item, PictureReference):
            found.append(read_picture(item, position))
            position += 1
        else:
            found.append(item)
    return Document(uri, title(page.root), metadata(page.root) | about, tuple(found))


def choose_picture(
    reference: PictureReference,
    position: int,
    nowhere: Fault,
    find: Callable[[str, list[tuple[str, Fault]]], Picture | None],
) -> Picture:
    """Return the picture that an image element means, without bytes but with a fault if no address leads to any.

    ``find`` returns the picture at an address as written, or adds an absolute address and its fault to a list, of which
    the first counts, else ``nowhere``. A placeholder counts only if the source holds no other picture of the element,
    and attributes of scripts name none on the web.
    """
    refused: list[tuple[str, Fault]] = []
    found, is_small = reference.choose(lambda source: find(source, refused), lambda found: is_placeholder(found.data))
    of_scripts = refused if is_small and reference.has_choice else []
    remote = next((pair for pair in of_scripts if pair[1].detail == NOT_FETCHED), None)
    if found and not remote:
        return found
    url, fault = remote or next(iter(refused), (nowhere.item, nowhere))
    return Picture(position, url, reference.alt_text, b"", fault)


def _nodes(text: str) -> int:
    """Count an upper bound of the elements and attributes in ``text``."""
    if (n := text.count("<")) <= MOST_NODES:
        n += sum(1 for tag in TAG.finditer(text) for _ in ATTRIBUTE.finditer(QUOTED.sub("='", tag[0])))
    return n


def _count_comparisons(text: str) -> int:
    """Estimate how many pairs of attributes the parser compares, in tags of over 5,000 characters."""
    long = (tag[0] for tag in TAG.finditer(text) if len(tag[0]) > 5000)
    return sum(len(ATTRIBUTE.findall(QUOTED.sub("='", tag))) ** 2 for tag in long)


def title(root: Any) -> str:
    """Return the text of <title>, else of the first heading, else ''. The <title> of an <svg> names a drawing."""
    for tag in ("title", "h1"):
        for element in root.iter(tag):
            words = " ".join("".join(element.itertext()).split())
            if words and next(element.iterancestors("svg", "math"), None) is None:
                return words
    return ""


def metadata(root: Any) -> dict[str, object]:
    """Return the page's metadata by name: language, description, keywords, author, licence, dates, canonical URL."""
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


def opt_out(root: Any) -> str:
    """Return the directive of a ``<meta name="robots">`` that forbids use of the page, '' if there is none."""
    for element in root.iter("meta"):
        name = (element.get("name") or element.get("http-equiv") or "").strip().lower()
        if name in ROBOTS and (directive := find_opt_out((element.get("content") or "",))):
            return f"meta {name}: {directive}"
    return ""


def base(root: Any) -> str:
    """Return the href of the page's <base>; '' if there is none, or if browsers ignore it."""
    href = next((element.get("href").strip() for element in root.iter("base") if element.get("href")), "")
    return "" if href.lower().startswith(("data:", "javascript:")) else href
