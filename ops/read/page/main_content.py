"""Find which text blocks of a page are its main content, by resiliparse's rules and two of our own.

The rules of resiliparse alone lose every <figcaption> and some lists. trafilatura, the other library for this task,
loses captions too, and a sixth of a manual, at four times the cost. The library therefore only votes on each block; the
reading order, the images and the captions are those of ops.read.page.reading_order.

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
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]
from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingModuleSource]

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
