"""Walk a page's text blocks and pictures in reading order, without scripts, menus and what is no content."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]

from pairmill.ops.read.document import Text
from pairmill.ops.read.page.main_content import is_main
from pairmill.ops.read.page.picture_reference import PictureReference, picture


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
# What stands in these is a caption: of a figure or a table.
CAPTIONED = frozenset(("figure", "figcaption", "caption"))
SENTENCE_END = re.compile(r"""[.!?:;…。！？]["'”’)\]»]*$""")


def items(root: Any) -> list[Text | PictureReference]:
    """List the text blocks of the main content, and all pictures, as a reader meets them.

    Text of scripts, navigation, site headers and footers, asides and form controls is left out, then what is_main
    rejects; their pictures are kept. A form that holds paragraphs or headings is a page's frame (some servers wrap
    every page so) and keeps its text.
    """
    walk = _Walk()
    for event, element in etree.iterwalk(root, events=("start", "end")):
        walk.enter(element) if event == "start" else walk.leave(element)
    walk.flush()
    blocks = [item.text for item in walk.found if isinstance(item, Text)]
    kept = iter(is_main(root, blocks, walk.captions, walk.depths))
    return [item for item in walk.found if not isinstance(item, Text) or next(kept)]


@dataclass
class _Walk:
    """``words`` since the last block boundary, ``waiting`` pictures for its end; what was ``found``, in order.

    ``captions`` says of each text found whether it is one; ``depths`` is the sum of the depths of all elements met.
    ``silent``, ``captioned`` and ``inside`` (an element of CONTENT) count the open elements that are so.
    """

    found: list[Text | PictureReference] = field(default_factory=list)
    captions: list[bool] = field(default_factory=list)
    words: list[str] = field(default_factory=list)
    waiting: list[PictureReference] = field(default_factory=list)
    last: PictureReference | None = None
    silent: int = 0
    captioned: int = 0
    inside: int = 0
    depth: int = 0
    depths: int = 0

    def enter(self, element: Any) -> None:
        """Handle an element's start."""
        tag = element.tag
        if tag in BLOCKS or tag == "br":
            self.flush()
        self.depth += 1
        self.depths += self.depth
        self.captioned += tag in CAPTIONED
        self.inside += tag in CONTENT
        self.silent += _is_silent(element, self.inside > 0)
        shown = picture(element)
        if shown and not self._repeats(shown, element):
            self._show(shown)
        if not self.silent and element.text:
            self.words.append(element.text)

    def leave(self, element: Any) -> None:
        """Handle an element's end."""
        tag = element.tag
        if tag in BLOCKS:
            self.flush()
        self.depth -= 1
        self.captioned -= tag in CAPTIONED
        self.silent -= _is_silent(element, self.inside > 0)
        self.inside -= tag in CONTENT
        if not self.silent and element.tail:
            self.words.append(element.tail)

    def flush(self) -> None:
        """End the current text block."""
        text = " ".join("".join(self.words).split())
        if text:
            self.found.append(Text(text))
            self.captions.append(self.captioned > 0)
        self.found += self.waiting
        self.words, self.waiting = [], []

    def _show(self, reference: PictureReference) -> None:
        """Add a picture: between two sentences it parts them; an icon inside a sentence waits until its block ends."""
        # The last pieces only: a paragraph of ten thousand icons must not be joined for each of them.
        tail = "".join(self.words[-4:]).rstrip()[-8:]
        self.waiting.append(reference)
        self.last = reference
        if not tail or SENTENCE_END.search(tail):
            self.flush()

    def _repeats(self, reference: PictureReference, element: Any) -> bool:
        """Whether a <noscript> repeats, for old browsers, the picture that a script would load."""
        if not self.last or not set(reference.sources) & set(self.last.sources):
            return False
        return next(element.iterancestors("noscript"), None) is not None


def _is_silent(element: Any, is_inside: bool) -> bool:
    tag = element.tag
    if tag in SILENT or (element.get("role") or "").lower() in LANDMARKS or element.get("hidden") is not None:
        return True
    if tag == "header":
        return not is_inside
    if tag == "form":
        return next(element.iter("p", "h1", "h2", "h3", "article", "main"), None) is None
    return False
