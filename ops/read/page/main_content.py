"""Find which text blocks of a page are its main content, by resiliparse's rules and two of our own.

Rules of resiliparse alone lose every <figcaption> and some lists; trafilatura, the other library made for this, loses
captions too and a sixth of a manual, at four times the cost. So the library only votes, block by block: the
reading order, the pictures and the captions stay those of ops.read.page.reading_order.

Words (4-grams; 2-grams for the manuals) kept of what is content (R), and share of content in what is kept (P):

| pages | every block | this module | resiliparse 2.0 | trafilatura 2.3, fast |
|---|---|---|---|---|
| 181 news pages of scrapinghub's benchmark | P .668 R .993 | P .825 R .988 | P .892 R .981 | P .946 R .979 |
| 168 pages of a wiki (hugin's manual) | P .910 R .991 | P .930 R .986 | P .957 R .968 | P .968 R .981 |
| 207 pages of GIMP's manual | P .948 R 1.000 | P .948 R 1.000 | P .944 R .980 | P .980 R .784 |
| 120 pages of the demo world | P 1.00 R .941 | P 1.00 R .941 | P .996 R .869 | P .996 R .842 |
| CPU ms a news page of 174 KB | 3.7 | 5.5 | 2.1 | 8.8 |
"""

from __future__ import annotations

import re
from typing import Any

from lxml import etree  # pyright: ignore[reportAttributeAccessIssue]
from resiliparse.extract.html2text import extract_plain_text  # pyright: ignore[reportMissingModuleSource]

WORDS = re.compile(r"\w+")
# Content that the library loses stands between what it keeps; longer gaps are lists of links and adverts.
MAX_GAP = 10
# A page this short has no frame worth the loss of a list.
FEWEST_LETTERS = 500
# With less of a page's letters than this the library has found a title and no content.
LEAST = 0.1
# Sum of all elements' depths up to which the library is asked: its time grows with it, 1 s here at the worst. Large
# real pages have 50,000 elements at a depth of 20.
MOST_DEPTHS = 2_000_000


def is_main(root: Any, blocks: list[str], captions: list[bool], depths: int) -> list[bool]:
    """Decide for each text block whether it is main content; all are when none can be told from the rest.

    ``captions`` says which blocks are of a figure or a table's caption: these always are. ``depths`` is the sum of the
    depths of all elements. A block counts when half of its word triples are in the library's text.
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
    if block in lines:
        return True
    triples = _triples(block)
    return bool(triples) and 2 * sum(triple in known for triple in triples) >= len(triples)


def _triples(text: str) -> list[tuple[str, ...]]:
    words = WORDS.findall(text)
    return list(zip(words, words[1:], words[2:], strict=False))


def _fill(kept: list[bool]) -> None:
    """Close the gaps of at most MAX_GAP blocks between kept ones."""
    last = None
    for place, is_kept in enumerate(kept):
        if not is_kept:
            continue
        if last is not None and place - last - 1 <= MAX_GAP:
            kept[last:place] = [True] * (place - last)
        last = place
