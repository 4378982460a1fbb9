"""Measure the recall of the association against exact search, on a sample in every run."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import duplicate_edges, eligible, index_ranges, training
from pairmill.catalog.pending.eligible import matches
from pairmill.catalog.pending.training import IMAGES, SENTENCES
from pairmill.ops.whole.search import first_of_groups, recall_at_k
from pairmill.tasks.run.items.rows import read_table, to_vectors
from pairmill.tasks.run.session import Session

SAMPLE = 200  # pictures: a recall of 0.95 is then known to within 0.02 (standard error over 600 places)
CROWD = 32
AT_ONCE = 25_000  # vectors: 0.1 GB with 1,024 dimensions, and some 0.1 GB to order their similarities with SAMPLE


def measure_recall(session: Session) -> float | None:
    """Return recall@top_k of the stored candidates, on the images of smallest sha256(key || seed); None without images.

    Reads the sentence index once, in turns of AT_ONCE rows or one larger file: 800M sentences of 1024 fp16 are 1.6 TB,
    so at that size measure recall on a schedule of its own. Only the nearest sentence of a duplicate group counts, as
    in the search. An image whose CROWD x top_k nearest sentences belong to fewer than top_k groups is measured by these
    groups.
    """
    k = session.recipe.association.top_k
    index = session.plan.scorer(SENTENCES.clusters)
    if not index:
        return None
    pictures = training.sample(session.lake, session.plan, IMAGES, SAMPLE)
    if not pictures.num_rows:
        return None
    queries = to_vectors(pictures["vector"])
    paths = index_ranges.index_files(session.lake, index).paths
    keys, values = nearest_sentences(queries, paths, CROWD * k)
    of = group_numbers(session, keys, values)
    _, exact = first_of_groups(of, values, of, k)
    found = np.full((len(queries), k), -np.inf, np.float32)
    place = {key: n for n, key in enumerate(pictures["key"].to_pylist())}
    rows = eligible.best_similarities(session.lake, matches(session.plan), list(place), k)
    for key, rank, similarity in rows:
        found[place[key], rank - 1] = similarity
    return round(recall_at_k(found, exact, k), 4)


def group_numbers(session: Session, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the duplicate group of each result of `nearest_sentences`, (n, k) int64 >= 0; -1 for padding."""
    contents, content = np.unique(keys, return_inverse=True)
    known: list[str] = contents.tolist()
    groups = duplicate_edges.groups_of(session.lake, session.plan.scorer("sentence_groups"), known)
    _, group = np.unique(np.array([groups.get(key, key) for key in known], str), return_inverse=True)
    return np.where(np.isneginf(values), -1, group[content].reshape(values.shape))


def nearest_sentences(queries: np.ndarray, paths: tuple[str, ...], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Search the files of an index exactly; return keys and similarities, each (n, k), best first.

    Rows with fewer than ``k`` results are padded with '' and -inf.
    """
    keys = np.full((len(queries), k), "", "<U32")
    values = np.full((len(queries), k), -np.inf, np.float32)
    for rows in _turns(paths):
        all_values = np.hstack([values, queries @ to_vectors(rows["index_vector"]).T])
        best = np.argsort(-all_values, axis=1, kind="stable")[:, :k]
        known = np.take_along_axis(keys, np.minimum(best, k - 1), axis=1)
        here = rows["key"].to_numpy().astype("<U32")[np.maximum(best - k, 0)]
        keys, values = np.where(best < k, known, here), np.take_along_axis(all_values, best, axis=1)
    return keys, values


def _turns(paths: tuple[str, ...]) -> Iterator[pa.Table]:
    """Yield the rows of the files in order, small files together."""
    turn: list[pa.Table] = []
    for path in paths:
        turn.append(read_table(path, ["key", "index_vector"]))
        if sum(table.num_rows for table in turn) >= AT_ONCE:
            yield pa.concat_tables(turn)
            turn = []
    if turn:
        yield pa.concat_tables(turn)
