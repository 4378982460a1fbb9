"""One HTML page as text blocks and picture references in reading order."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from ops.read.charset import decode_text
from ops.read.document import Text


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


SILENT = _words(
    "script style noscript template nav footer aside select option textarea button label datalist "
    "svg math head iframe object video audio canvas dialog menu rp rt"
)
LANDMARKS = _words("navigation banner contentinfo complementary search menu menubar toolbar dialog")
BLOCKS = _words(
    "address article blockquote body center dd details div dl dt fieldset figcaption figure form h1 h2 h3 h4 h5 h6 "
    "hr html li main ol p pre section summary table tbody td tfoot th thead tr ul caption header nav footer aside"
)
# A <header> inside these is the heading of the text, elsewhere it is the site's.
CONTENT = frozenset(("article", "main", "section"))
SENTENCE_END = re.compile(r"""[.!?:;…。！？]["'”’)\]»]*$""")
# Lazy loading keeps the true address here while src holds a placeholder.
LAZY = ("data-src", "data-original", "data-lazy-src", "data-lazy", "data-url", "data-full-src")
LAZY_SETS = ("data-srcset", "data-lazy-srcset")


@dataclass(frozen=True)
class PictureReference:
    """A picture element; ``sources`` are its possible addresses as written, best first."""

    sources: tuple[str, ...]
    alt_text: str


@dataclass
class Page:
    """``root`` is None when there is nothing at all; ``broken`` tells why markup is lost, '' when none is.

    ``n_bad`` letters could not be decoded, ``n_letters`` could.
    """

    root: Any
    broken: str
    charset: str
    n_bad: int
    n_letters: int


def parse(data: bytes) -> Page:
    """The page's tree, however broken the markup; never raises."""
    decoded = decode_text(data)
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


def title(root: Any) -> str:
    """The <title>, else the first heading, else ''."""
    for tag in ("title", "h1"):
        for element in root.iter(tag):
            words = " ".join("".join(element.itertext()).split())
            if words:
                return words
    return ""


def metadata(root: Any) -> dict[str, object]:
    """What a page says about itself: language, description, keywords, author, canonical address."""
    found: dict[str, object] = {}
    if root.get("lang"):
        found["language"] = root.get("lang")
    for element in root.iter("meta"):
        name = (element.get("name") or element.get("property") or "").lower()
        if name in ("description", "keywords", "author", "og:title", "og:description") and element.get("content"):
            found.setdefault(name, element.get("content"))
    for element in root.iter("link"):
        if "canonical" in (element.get("rel") or "").lower().split() and element.get("href"):
            found.setdefault("canonical", element.get("href"))
    return found


def base(root: Any) -> str:
    return next((element.get("href") for element in root.iter("base") if element.get("href")), "")


def picture(element: Any) -> PictureReference | None:
    """The reference of an element that shows a picture: img, SVG image, input, object, embed, a video's poster."""
    tag = element.tag
    if tag == "img":
        sources = _image_sources(element)
    elif tag == "image":
        # Inside an SVG drawing; elsewhere browsers take it for img.
        sources = [element.get("href"), element.get("xlink:href"), element.get("src")]
    elif tag == "input" and (element.get("type") or "").lower() == "image":
        sources = [element.get("src")]
    elif tag in ("object", "embed") and (element.get("type") or "").lower().startswith("image/"):
        sources = [element.get("data") or element.get("src")]
    elif tag == "video" and element.get("poster"):
        sources = [element.get("poster")]
    else:
        return None
    alt = element.get("alt") or element.get("title") or element.get("aria-label") or ""
    return PictureReference(tuple(dict.fromkeys(source for source in sources if source)), " ".join(alt.split()))


def _image_sources(element: Any) -> list[str | None]:
    """src first, but after the lazy address when src is only a placeholder; then srcset and the <picture>'s sources."""
    src = (element.get("src") or "").strip()
    lazy = [element.get(name) for name in LAZY if element.get(name)]
    for name in LAZY_SETS:
        lazy += _srcset(element.get(name) or "")
    sources: list[str | None] = [*lazy, src] if src.startswith("data:") or not src else [src, *lazy]
    sources += _srcset(element.get("srcset") or "")
    # The parser takes <source> for an element with content, so the picture may be far above.
    for above in element.iterancestors("picture"):
        for source in above.iter("source"):
            sources += _srcset(source.get("srcset") or source.get("data-srcset") or "")
    return sources


def _srcset(value: str) -> list[str]:
    """Addresses of a srcset, the largest picture first; an address may itself hold commas (data: URIs, CDNs)."""
    sized: list[tuple[float, str]] = []
    value = " ".join(value.split())  # a run of spaces would cost its square below
    for found in re.finditer(r"\s*([^\s,]\S*[^\s,]|[^\s,])(?:\s+([\d.]+)[wxh])?[^,]*(?:,|$)", value):
        try:
            sized.append((float(found[2] or 1), found[1]))
        except ValueError:
            sized.append((1.0, found[1]))
    return [address for _, address in sorted(sized, key=lambda pair: -pair[0])]


@dataclass
class _Block:
    """The text since the last block boundary, and the pictures that wait for its end."""

    words: list[str] = field(default_factory=list)
    waiting: list[PictureReference] = field(default_factory=list)

    def flush(self) -> Iterator[Text | PictureReference]:
        text = " ".join("".join(self.words).split())
        if text:
            yield Text(text)
        yield from self.waiting
        self.words, self.waiting = [], []

    def show(self, reference: PictureReference) -> Iterator[Text | PictureReference]:
        """A picture between two sentences parts them; an icon inside a sentence waits until its block ends."""
        # The last pieces only: a paragraph of ten thousand icons must not be joined for each of them.
        tail = "".join(self.words[-4:]).rstrip()[-8:]
        self.waiting.append(reference)
        if not tail or SENTENCE_END.search(tail):
            yield from self.flush()


def items(root: Any) -> Iterator[Text | PictureReference]:
    """Text blocks and pictures as a reader meets them.

    Text of scripts, navigation, site headers and footers, asides and form controls is dropped; their pictures are kept.
    A form that holds paragraphs or headings is a page's frame (some servers wrap every page so) and keeps its text.
    """
    block = _Block()
    silent = 0
    last: PictureReference | None = None
    for event, element in etree.iterwalk(root, events=("start", "end")):
        tag = element.tag
        is_silent = _is_silent(element)
        if event == "start":
            if tag in BLOCKS or tag == "br":
                yield from block.flush()
            silent += is_silent
            found = picture(element)
            # A <noscript> repeats for old browsers the picture that a script would load.
            if found and not (
                found.sources and last and _in_noscript(element) and set(found.sources) & set(last.sources)
            ):
                yield from block.show(found)
                last = found
            if not silent and element.text:
                block.words.append(element.text)
        else:
            if tag in BLOCKS:
                yield from block.flush()
            silent -= is_silent
            if not silent and element.tail:
                block.words.append(element.tail)
    yield from block.flush()


def _is_silent(element: Any) -> bool:
    tag = element.tag
    if tag in SILENT or (element.get("role") or "").lower() in LANDMARKS or element.get("hidden") is not None:
        return True
    if tag == "header":
        return not any(above.tag in CONTENT for above in element.iterancestors())
    if tag == "form":
        return next(element.iter("p", "h1", "h2", "h3", "article", "main"), None) is None
    return False


def _in_noscript(element: Any) -> bool:
    return any(above.tag == "noscript" for above in element.iterancestors())
