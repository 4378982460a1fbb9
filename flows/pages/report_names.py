"""Count the distinct names in the texts of a dataset, as RealSyn's paper does."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures import pair_sample
from pairmill.catalog.terms import text_columns
from pairmill.ops.text.capitalised_names import names

PAIRS = 2_000  # RealSyn: 1M


@dataclass(frozen=True)
class NameCounts:
    """Number of distinct names by kind of text that ``pairs`` sampled pairs have."""

    pairs: int
    found: dict[str, int]


def names_of_pairs(lake: Lake, dataset: Dataset, seed: int) -> NameCounts:
    """Count the names of the first PAIRS pairs of the sample that the report shows."""
    rows = pair_sample.sample(lake, dataset, seed, PAIRS)
    texts = {
        "sentences": [row[name] for row in rows for name in text_columns.texts(dataset.n_texts)],
        "captions": [row["caption"] for row in rows],
        "fused texts": [row["syn_text"] for row in rows],
    }
    filled = {kind: [text for text in of_kind if text] for kind, of_kind in texts.items()}
    return NameCounts(len(rows), {kind: len(set().union(*map(names, all_))) for kind, all_ in filled.items() if all_})
