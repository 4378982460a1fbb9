"""Measure the recall of the association against exact search, and find the fewest probes that reach a recall.

Both use a sample of the lake's own images. One exact search gives the recall of every number of probes: a sentence is
found with p probes if its cluster is among the image's p nearest. Recall never falls with more probes, so that
bisection finds the fewest.
"""

from bisect import bisect_left
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import duplicate_edges, eligible, index_ranges, row_files, training
from pairmill.catalog.pending.training import IMAGES, SENTENCES, Trained
from pairmill.catalog.write.scorer import settings_of
from pairmill.ops.whole import kmeans
from pairmill.ops.whole.search import first_of_groups, recall_at_k
from pairmill.tasks.relate.cluster import centroid_scorer, index, load_centroids, sentence_clustering
from pairmill.tasks.run.items.rows import read_table, to_vectors
from pairmill.tasks.run.session import Session

SAMPLE = 200  # pictures: a recall of 0.95 is then known to within 0.02 (standard error over 600 places)
CROWD = 32
AT_ONCE = 25_000  # vectors: 0.1 GB with 1,024 dimensions, and some 0.1 GB to order their similarities with SAMPLE

ROUTES = "image_routes"
MOST_PROBES = 1024  # of 2M clusters; a small lake has fewer clusters than this


def measure_recall(session: Session) -> float | None:
    """Return recall@top_k, [0, 1], of the stored candidates for a sample of images; None without images or clusters.

    The sample is the SAMPLE images of smallest sha256(key || seed). Reads the sentence index once, in turns of AT_ONCE
    rows or one larger file: 800M sentences of 1024 fp16 are 1.6 TB, so at that size measure recall on a schedule of its
    own. Only the nearest sentence of a duplicate group counts, as in the search. An image whose CROWD x top_k nearest
    sentences belong to fewer than top_k groups is measured by these groups.
    """
    k = session.recipe.association.top_k
    clusters = session.plan.scorer(SENTENCES.clusters)
    if not clusters:
        return None
    pictures = training.sample(session.lake, session.plan, IMAGES, SAMPLE)
    if not pictures.num_rows:
        return None
    queries = to_vectors(pictures["vector"])
    paths = row_files.index_files(session.lake, clusters).paths
    keys, values = nearest_sentences(queries, paths, CROWD * k)
    of = group_numbers(session, keys, values)
    _, exact = first_of_groups(of, values, of, k)
    found = np.full((len(queries), k), -np.inf, np.float32)
    place = {key: n for n, key in enumerate(pictures["key"].to_pylist())}
    rows = eligible.best_similarities(session.lake, session.plan, list(place), k)
    for key, rank, similarity in rows:
        found[place[key], rank - 1] = similarity
    return round(recall_at_k(found, exact, k), 4)


def group_numbers(session: Session, keys: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the number of the duplicate group of each result of `nearest_sentences`, (n, k) int64; -1 for padding."""
    contents, content = np.unique(keys, return_inverse=True)
    known: list[str] = contents.tolist()
    groups = duplicate_edges.groups_of(session.lake, session.plan.scorer("sentence_groups"), known)
    _, group = np.unique(np.array([groups.get(key, key) for key in known], str), return_inverse=True)
    return np.where(np.isneginf(values), -1, group[content].reshape(values.shape))


def nearest_sentences(queries: np.ndarray, paths: tuple[str, ...], k: int) -> tuple[np.ndarray, np.ndarray]:
    """Search the index files ``paths`` exactly for the nearest sentences of ``queries``, float32 (n, d).

    Return keys and similarities, each (n, k), best first; rows with fewer than ``k`` results end in '' and -inf.
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


def route(session: Session) -> None:
    """Assign images to the fewest sentence clusters (probes) that reach `association.recall`; do nothing without it.

    Runs after sentences are grouped, because only the nearest sentence of a duplicate group counts. The number of
    probes is frozen until the centroids are trained anew, or until the sample has grown by `retrain_at`.
    """
    recall = session.recipe.association.recall
    scorer = centroid_scorer(session, sentence_clustering(session))
    model = training.find_trained(session.lake, scorer.digest) if recall is not None else None
    if recall is None or model is None or not session.plan.scorer(SENTENCES.clusters):
        return
    pictures = training.sample(session.lake, session.plan, IMAGES, SAMPLE)
    probes, sampled = _frozen(session, model, recall)
    if not sampled or pictures.num_rows > session.recipe.association.retrain_at * sampled:
        probes, sampled = _fewest(session, model, to_vectors(pictures["vector"]), recall), pictures.num_rows
    # Without a sample the probes are a default: no `recall` among the settings, so that nothing is frozen.
    found_by = {"recall": recall, "sampled": sampled} if sampled else None
    index(session, IMAGES, model, ROUTES, probes, found_by)


def _frozen(session: Session, model: Trained, recall: float) -> tuple[int, int]:
    """Return the frozen number of probes for ``recall`` with these centroids, and of measured images; else (0, 0)."""
    made_from = sorted((session.plan.scorer(IMAGES.table), model.digest))
    for found in settings_of(session.lake, ROUTES, made_from):
        if found.get("recall") == recall:
            return found["probes"], found["sampled"]
    return 0, 0


def _fewest(session: Session, model: Trained, queries: np.ndarray, recall: float) -> int:
    """Return the fewest probes with which the search finds ``recall`` of each query's exact top_k groups."""
    most = min(model.k, MOST_PROBES)
    paths = row_files.index_files(session.lake, session.plan.scorer(SENTENCES.clusters)).paths
    if not len(queries) or not paths:
        return 1
    k = session.recipe.association.top_k
    keys, values = nearest_sentences(queries, paths, CROWD * k)
    groups = group_numbers(session, keys, values)
    centroids, router = load_centroids(model.path)
    ranks = probe_ranks(kmeans.assign(queries, centroids, most, router), _clusters(session, keys))
    return fewest_probes(ranks, values, groups, k, recall, most)


def _clusters(session: Session, keys: np.ndarray) -> np.ndarray:
    """Return the cluster of each sentence, in the shape of ``keys``; -1 for padding."""
    contents, content = np.unique(keys, return_inverse=True)
    of = index_ranges.clusters_of(session.lake, session.plan.scorer(SENTENCES.clusters), contents.tolist())
    return np.array([of.get(key, -1) for key in contents.tolist()], np.int64)[content].reshape(keys.shape)


def probe_ranks(nearest: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """Return the rank, from 0, of each of ``clusters`` (n, w) in its row of ``nearest`` (n, p); p if it is absent."""
    ranks = np.full(clusters.shape, nearest.shape[1], np.int64)
    for place in reversed(range(nearest.shape[1])):
        ranks[(clusters == nearest[:, place, None]) & (clusters >= 0)] = place
    return ranks


def fewest_probes(
    ranks: np.ndarray, similarities: np.ndarray, groups: np.ndarray, k: int, recall: float, most: int
) -> int:
    """Return the fewest probes, 1 to ``most``, whose recall@k is at least ``recall``; ``most`` if none reaches it.

    Of each result of n queries, (n, w): ``ranks``, the rank of its cluster among its query's nearest clusters, from 0;
    ``similarities`` of the exact search, best first, padded with -inf; ``groups``, its duplicate group, -1 for padding.
    A query gets ``k`` results. ``recall`` is in (0, 1].
    """
    _, exact = first_of_groups(groups, similarities, groups, k)

    def reached(probes: int) -> float:
        found = np.where(ranks < probes, groups, -1)
        return recall_at_k(first_of_groups(found, similarities, found, k)[1], exact, k)

    return 1 + min(bisect_left(range(1, most + 1), recall, key=reached), most - 1)
