"""Analyse the texts of a dataset as RealSyn's paper does: topics by LDA, and distinct names."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures import pair_sample
from pairmill.catalog.terms import text_columns
from pairmill.ops.text.topics import Topic, names, topics

PAIRS = 2_000  # RealSyn: 1M
TOPICS = 30


@dataclass(frozen=True)
class TextAnalysis:
    """Analysis of the texts of ``pairs`` sampled pairs: their topics, and the number of distinct names by text."""

    pairs: int
    topics: tuple[Topic, ...]
    names: dict[str, int]


def analysed(lake: Lake, dataset: Dataset, seed: int) -> TextAnalysis:
    """Analyse the first PAIRS pairs of the sample that the report shows."""
    rows = pair_sample.sample(lake, dataset, seed, PAIRS)
    columns = text_columns.texts(dataset.n_texts)
    real = [" ".join(filter(None, (row[name] for name in columns))) for row in rows]
    whole = [" ".join(filter(None, (text, row["syn_text"]))) for text, row in zip(real, rows, strict=True)]
    texts = {
        "sentences": [row[name] for row in rows for name in columns],
        "captions": [row["caption"] for row in rows],
        "fused texts": [row["syn_text"] for row in rows],
    }
    filled = {kind: [text for text in of_kind if text] for kind, of_kind in texts.items()}
    known = {kind: len(set().union(*map(names, of_kind))) for kind, of_kind in filled.items() if of_kind}
    return TextAnalysis(len(rows), tuple(topics(whole, TOPICS, seed=seed)), known)
