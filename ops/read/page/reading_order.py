"""Extract a page's text blocks and images in reading order, without scripts, menus and other clutter.

Which blocks are the page's main content is found by resiliparse's rules and two of our own. The rules of resiliparse
alone lose every <figcaption> and some lists. trafilatura, the other library for this task, loses captions too, and a
sixth of a manual, at four times the cost. The library therefore only votes on each block; the reading order, the images
and the captions are those of ops.read.page.reading_order.

Recall R of content words (4-grams; 2-grams for the manuals), and precision P of the words that are kept:

| pages | every block | this module | resiliparse 2.0 | trafilatura 2.3, fast |
|---|---|---|---|---|
| 181 news pages of scrapinghub's benchmark | P .668 R .993 | P .825 R .988 | P .892 R .981 | P .946 R .979 |
| 168 pages of a wiki (hugin's manual) | P .910 R .991 | P .930 R .986 | P .957 R .968 | P .968 R .981 |
| 207 pages of GIMP's manual | P .948 R 1.000 | P .948 R 1.000 | P .944 R .980 | P .980 R .784 |
| 120 pages of the demo world | P 1.00 R .941 | P 1.00 R .941 | P .996 R .869 | P .996 R .842 |
| CPU ms a news page of 174 KB | 3.7 | 5.5 | 2.1 | 8.8 |
"""

import re
from dataclasses import dataclass, field
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]
from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingModuleSource]

from pairmill.ops.read.document import Text
from pairmill.ops.read.page.image_elements import SHOWING, ImageElements, PictureReference

WORDS = re.compile(r"\w+")
# In blocks. Content that the library misses stands between blocks that it keeps; longer gaps are links and adverts.
MAX_GAP = 10
# In characters. A shorter page has no navigation whose removal would be worth the loss of a list.
FEWEST_LETTERS = 500
# If the library keeps a smaller share of a page's characters, it has found a title and no content.
LEAST = 0.1
# Limit on the sum of all elements' depths; the library's time grows with this sum, and is 1 s at the limit. Large real
# pages have 50,000 elements at a depth of 20.
MOST_DEPTHS = 2_000_000


def is_main(root: Any, blocks: list[str], captions: list[bool], depths: int) -> list[bool]:
    """Return for each text block whether it is main content; all True if the main content cannot be determined.

    A block is main content if half of its word triples occur in the library's text, or if it is among ``captions``, the
    captions of figures and tables. ``root`` is the page's lxml element, ``depths`` the sum of its elements' depths.
    """
    letters = sum(len(block) for block in blocks)
    if letters < FEWEST_LETTERS or depths > MOST_DEPTHS:
        return [True] * len(blocks)
    html = etree.tostring(root, method="html", encoding="unicode")
    text = extract_plain_text(
        html, True, main_content=True, list_bullets=False, alt_texts=False, comments=False, post_meta=False
    )
    lines = {" ".join(line.split()) for line in text.split("\n")}
    known = set(_triples(text))
    kept = [is_caption or _is_in(block, lines, known) for block, is_caption in zip(blocks, captions, strict=True)]
    _fill(kept)
    if sum(len(block) for block, is_kept in zip(blocks, kept, strict=True) if is_kept) < LEAST * letters:
        return [True] * len(blocks)
    return kept


def _is_in(block: str, lines: set[str], known: set[tuple[str, ...]]) -> bool:
    """Return whether a block is a line of the library's text, or half of its word triples are in ``known``."""
    if block in lines:
        return True
    triples = _triples(block)
    return bool(triples) and 2 * sum(triple in known for triple in triples) >= len(triples)


def _triples(text: str) -> list[tuple[str, ...]]:
    """List the runs of three words in ``text``."""
    words = WORDS.findall(text)
    return list(zip(words, words[1:], words[2:], strict=False))


def _fill(kept: list[bool]) -> None:
    """Mark the blocks in gaps of at most MAX_GAP between main blocks as main; change ``kept`` in place."""
    last = None
    for place, is_kept in enumerate(kept):
        if not is_kept:
            continue
        if last is not None and place - last - 1 <= MAX_GAP:
            kept[last:place] = [True] * (place - last)
        last = place


def _words(text: str) -> frozenset[str]:
    """Split a list of names into a set."""
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
# A <header> inside these elements heads the text; elsewhere it is the site's header.
CONTENT = frozenset(("article", "main", "section"))
# Text inside these elements is a caption of a figure or a table.
CAPTIONED = frozenset(("figure", "figcaption", "caption"))
SENTENCE_END = re.compile(r"""[.!?:;…。！？]["'”’)\]»]*$""")


def items(root: Any) -> list[Text | PictureReference]:
    """List the text blocks of the main content, and all images, in reading order.

    Text of scripts, navigation, site headers and footers, asides and form controls is dropped, then the text that
    is_main rejects; images are kept. A form with paragraphs or headings keeps its text: some servers wrap every page.
    """
    walk = _Walk(ImageElements(root))
    for event, element in etree.iterwalk(root, events=("start", "end")):
        walk.enter(element) if event == "start" else walk.leave(element)
    walk.flush()
    blocks = [item.text for item in walk.found if isinstance(item, Text)]
    kept = iter(is_main(root, blocks, walk.captions, walk.depths))
    return [item for item in walk.found if not isinstance(item, Text) or next(kept)]


@dataclass
class _Walk:
    """The state of a walk over a page's elements."""

    images: ImageElements
    found: list[Text | PictureReference] = field(default_factory=list)  # the items so far, in order
    captions: list[bool] = field(default_factory=list)  # whether each text in ``found`` is a caption
    words: list[str] = field(default_factory=list)  # the text since the last block boundary
    waiting: list[PictureReference] = field(default_factory=list)  # images to add at the end of the block
    seen: set[str] = field(default_factory=set)  # the sources of all images so far
    silences: list[bool] = field(default_factory=list)  # of each open element, whether its text is dropped
    silent: int = 0  # how many of them are
    captioned: int = 0  # open elements that hold captions
    inside: int = 0  # open elements that are in CONTENT
    depth: int = 0
    depths: int = 0  # the sum of the depths of all elements seen

    def enter(self, element: Any) -> None:
        """Process an element's start tag."""
        if (tag := element.tag) in BLOCKS or tag == "br":
            self.flush()
        self.depth += 1
        self.depths += self.depth
        self.captioned += tag in CAPTIONED
        self.inside += tag in CONTENT
        self.silences.append(is_silent := _is_silent(element, self.inside > 0))
        self.silent += is_silent
        shown = self.images.read(element) if tag in SHOWING else None
        if shown and not self._repeats(shown, element):
            self._show(shown)
        if not self.silent and element.text:
            self.words.append(element.text)

    def leave(self, element: Any) -> None:
        """Process an element's end tag."""
        if (tag := element.tag) in BLOCKS:
            self.flush()
        self.depth -= 1
        self.captioned -= tag in CAPTIONED
        self.silent -= self.silences.pop()
        self.inside -= tag in CONTENT
        if not self.silent and element.tail:
            self.words.append(element.tail)

    def flush(self) -> None:
        """End the current text block, and add the waiting images after it."""
        if self.words:
            if text := " ".join("".join(self.words).split()):
                self.found.append(Text(text))
                self.captions.append(self.captioned > 0)
            self.words = []
        if self.waiting:
            self.found += self.waiting
            self.waiting = []

    def _show(self, reference: PictureReference) -> None:
        """Add an image and end the text block; inside a sentence, the image waits for the block to end."""
        # Join only the last pieces: a paragraph of ten thousand icons must not be joined again for each icon.
        tail = "".join(self.words[-4:]).rstrip()[-8:]
        self.waiting.append(reference)
        self.seen.update(reference.sources)
        if not tail or SENTENCE_END.search(tail):
            self.flush()

    def _repeats(self, reference: PictureReference, element: Any) -> bool:
        """Return whether a <noscript> repeats, for old browsers, the image that a script would load."""
        is_seen = not self.seen.isdisjoint(reference.sources)
        return is_seen and next(element.iterancestors("noscript"), None) is not None


def _is_silent(element: Any, is_inside: bool) -> bool:
    """Return whether the text of an element is dropped; ``is_inside`` tells that the element is inside CONTENT."""
    tag = element.tag
    if tag in SILENT or (element.get("role") or "").lower() in LANDMARKS or element.get("hidden") is not None:
        return True
    if tag == "header":
        return not is_inside
    return tag == "form" and next(element.iter("p", "h1", "h2", "h3", "article", "main"), None) is None
