"""Measure the recall of the association, in every run on a sample against exact search."""

import numpy as np

from catalog.pending import eligible, index_ranges, training
from catalog.pending.eligible import matches
from catalog.pending.training import IMAGES, SENTENCES
from ops.whole.search import recall_at_k
from tasks.run.rows import read_table, to_vectors
from tasks.run.session import Session

SAMPLE = 200  # pictures: a recall of 0.95 is then known to within 0.02 (standard error over 600 places)


def measure_recall(session: Session) -> float | None:
    """Measure recall@top_k of the stored candidates on pictures of smallest sha256(key || seed); None without any.

    One pass over the sentence index, file by file: at 800M sentences of 1024 fp16 that reads 1.6 TB, so at that size
    give the sample its own schedule.
    """
    k = session.recipe.association.top_k
    index = session.plan.scorer(SENTENCES.clusters)
    pictures = training.sample(session.lake, session.plan, IMAGES, SAMPLE)
    if not pictures.num_rows or not index:
        return None
    queries = to_vectors(pictures["vector"])
    exact = np.full((len(queries), k), -np.inf, np.float32)
    for path in index_ranges.index_paths(session.lake, index):
        block = to_vectors(read_table(path, ["index_vector"])["index_vector"])
        exact = -np.sort(-np.hstack([exact, queries @ block.T]), axis=1)[:, :k]
    found = np.full((len(queries), k), -np.inf, np.float32)
    place = {key: n for n, key in enumerate(pictures["key"].to_pylist())}
    rows = eligible.best_similarities(session.lake, matches(session.plan), list(place), k)
    for key, rank, similarity in rows:
        found[place[key], rank - 1] = similarity
    return round(recall_at_k(found, exact, k), 4)
