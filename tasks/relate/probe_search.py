"""Find the fewest probes that reach a recall, measured on a sample of the lake's own images, and route images by them.

One exact search tells every number of probes: a sentence is found with p probes if its cluster is among the image's p
nearest. Recall never falls with more probes, so that bisection finds the fewest.
"""

from bisect import bisect_left

import numpy as np

from pairmill.catalog.pending import index_ranges, training
from pairmill.catalog.pending.training import IMAGES, SENTENCES, Trained
from pairmill.catalog.write.scorer import settings_of
from pairmill.ops.whole import kmeans
from pairmill.ops.whole.search import first_of_groups, recall_at_k
from pairmill.tasks.relate.cluster import centroid_scorer, index, load_centroids, sentence_clustering
from pairmill.tasks.relate.recall import CROWD, SAMPLE, group_numbers, nearest_sentences
from pairmill.tasks.run.items.rows import to_vectors
from pairmill.tasks.run.session import Session

ROUTES = "image_routes"
MOST_PROBES = 1024  # of 2M clusters; a small lake has fewer clusters than this


def route(session: Session) -> None:
    """Assign images to sentence clusters by the probes that reach `association.recall`; nothing without the setting.

    Runs after sentences are grouped, because only the nearest sentence of a duplicate group counts. The probes are
    frozen until the centroids are trained anew, or until the sample has grown by `retrain_at`.
    """
    recall = session.recipe.association.recall
    scorer = centroid_scorer(session, sentence_clustering(session))
    model = training.trained(session.lake, scorer.digest) if recall is not None else None
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
    """Return the probes found last for ``recall`` with these centroids, and the number of images measured; or 0, 0."""
    made_from = sorted((session.plan.scorer(IMAGES.table), model.digest))
    for found in settings_of(session.lake, ROUTES, made_from):
        if found.get("recall") == recall:
            return found["probes"], found["sampled"]
    return 0, 0


def _fewest(session: Session, model: Trained, queries: np.ndarray, recall: float) -> int:
    """Return the fewest probes with which the search finds ``recall`` of each query's exact top_k groups."""
    most = min(model.k, MOST_PROBES)
    paths = index_ranges.index_files(session.lake, session.plan.scorer(SENTENCES.clusters)).paths
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
    """Return the place, from 0, of each of ``clusters`` (n, w) in the row's ``nearest`` (n, p); p if not there."""
    ranks = np.full(clusters.shape, nearest.shape[1], np.int64)
    for place in reversed(range(nearest.shape[1])):
        ranks[(clusters == nearest[:, place, None]) & (clusters >= 0)] = place
    return ranks


def fewest_probes(
    ranks: np.ndarray, similarities: np.ndarray, groups: np.ndarray, k: int, recall: float, most: int
) -> int:
    """Return the fewest probes, 1 to ``most``, whose recall@k is at least ``recall``; ``most`` if none reaches it.

    Args:
        ranks: The place of each result's cluster among its query's clusters, (n, w), from 0.
        similarities: Similarities of the exact search, (n, w), best first, padded with -inf.
        groups: The duplicate group of each result, (n, w), -1 for padding.
        k: Results that a query gets.
        recall: The recall to reach, (0, 1].
        most: The largest number of probes.
    """
    _, exact = first_of_groups(groups, similarities, groups, k)

    def reached(probes: int) -> float:
        found = np.where(ranks < probes, groups, -1)
        return recall_at_k(first_of_groups(found, similarities, found, k)[1], exact, k)

    return 1 + min(bisect_left(range(1, most + 1), recall, key=reached), most - 1)
