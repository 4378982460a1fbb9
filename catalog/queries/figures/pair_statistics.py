"""Compute distributions over pairs: similarities, and lengths of texts in words."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.histogram import Histogram, histograms_of
from pairmill.catalog.queries.figures.pair_sample import of_version
from pairmill.catalog.terms import text_columns

SAMPLE = 200_000  # pairs whose texts' lengths are counted
TEXTS = {"text1": "first sentence", "caption": "caption", "syn_text": "fused text"}


def similarity_histograms(lake: Lake, dataset: Dataset) -> list[Histogram]:
    """Return the histogram of each similarity of the pairs that has a value."""
    names = (*text_columns.similarities(dataset.n_texts), "caption_similarity", "synthetic_similarity")
    return histograms_of(lake, f"SELECT {', '.join(names)} FROM pairs WHERE {of_version(dataset)}", names, "pair")


def length_histograms(lake: Lake, dataset: Dataset) -> list[Histogram]:
    """Return the histogram of the words of each kind of text, over the SAMPLE pairs with the smallest ids.

    Words are counted by spaces: a text in a script without spaces is one word.
    """
    columns = ", ".join(
        f"(length(trim({text})) - length(replace(trim({text}), ' ', '')) + 1)::INTEGER AS \"words of {name}\""
        for text, name in TEXTS.items()
    )
    drawn = f"SELECT {', '.join(TEXTS)} FROM pairs WHERE {of_version(dataset)} ORDER BY image_id LIMIT {SAMPLE}"
    blank = ", ".join(f"nullif({text}, '') AS {text}" for text in TEXTS)
    names = tuple(f"words of {name}" for name in TEXTS.values())
    return histograms_of(lake, f"SELECT {columns} FROM (SELECT {blank} FROM ({drawn}))", names, "pair")
