"""Read from a lake's first rows which texts a source has: captions beside pictures, and sentences."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake

MOST_SENTENCES = 500


@dataclass(frozen=True)
class FirstTexts:
    """What a sample of a source has of texts: captions beside pictures, and sentences."""

    pictures: int
    captioned: int  # how many of them came with a text of their own: a caption file or column, an alt text
    sentences: tuple[str, ...]  # up to MOST_SENTENCES sentences


def first_texts(lake: Lake) -> FirstTexts:
    """Count the captions of a lake that holds a sample, and read its first sentences; reads all of its pictures."""
    own = "SELECT alt_text FROM images UNION ALL SELECT alt_text FROM links"
    n, captioned = lake.query(f"SELECT count(*), count(*) FILTER (trim(alt_text) <> '') FROM ({own})")[0]
    rows = lake.query(f"SELECT text FROM sentences ORDER BY sentence_id LIMIT {MOST_SENTENCES}")
    return FirstTexts(n, captioned, tuple(text for (text,) in rows))
