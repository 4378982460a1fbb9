"""Find the connected components of a graph, and split components over a size limit by dropping their longer edges.

scipy.sparse.csgraph takes 1.5 to 3 times the CPU for groups of copies at random positions (0.6 to 0.9 for neighbours).
"""

from dataclasses import dataclass

import numpy as np

VERSION = 1  # increase when nodes are grouped otherwise, rare ones aside
# Number of equal steps between the largest and the smallest distance of a component at which edges are dropped.
STEPS = 20


@dataclass(frozen=True)
class SplitComponent:
    """Record of how one component over the size limit was split."""

    label: int  # its smallest node
    size: int  # its number of nodes
    parts: int  # their number


def components(n: int, edges: tuple[np.ndarray, ...]) -> np.ndarray:
    """Label each of ``n`` nodes with the smallest node of its component: (n,) int64.

    ``edges`` is (i, j, …): two arrays of end nodes in any order, with duplicates and loops; further ones are ignored.
    """
    parent = np.arange(n, dtype=np.int64)
    left, right = np.asarray(edges[0], dtype=np.int64), np.asarray(edges[1], dtype=np.int64)
    while len(left):
        # Attach each root to the smallest root that an edge connects it with, then compress the paths to the roots.
        left, right = parent[left], parent[right]
        open_edges = left != right
        left, right = left[open_edges], right[open_edges]
        np.minimum.at(parent, np.maximum(left, right), np.minimum(left, right))
        while not np.array_equal(shorter := parent[parent], parent):
            parent = shorter
    return parent


def recut(
    n: int, edges: tuple[np.ndarray, np.ndarray], distance: np.ndarray, max_group: int
) -> tuple[np.ndarray, list[SplitComponent]]:
    """Split components over ``max_group`` nodes; return (component labels (n,) int64, the components that were split).

    A component over the limit keeps only edges up to a smaller distance, a twentieth of its span at a time; so do its
    parts that are still over the limit, while the other parts stay. ``distance`` (m,) is smaller for more similar
    nodes; different kinds of edges must be on one scale (each divided by its own limit). Nodes joined at the smallest
    distance of all (such as equal hashes) cannot be separated by distance: they are split in index order, ``max_group``
    at a time. Raises ValueError if ``max_group`` is less than 1.
    """
    if max_group < 1:
        raise ValueError(f"max_group is {max_group}; it must be at least 1")
    left, right = (np.asarray(end, dtype=np.int64) for end in edges)
    far = np.asarray(distance, dtype=np.float64)
    labels = components(n, (left, right))
    sizes = np.bincount(labels, minlength=n)
    report = []
    by_label = np.argsort(labels[left], kind="stable")
    sorted_labels = labels[left][by_label]
    nodes_by_label = np.argsort(labels, kind="stable")
    node_labels = labels[nodes_by_label]
    for label in np.flatnonzero(sizes > max_group):
        inside = by_label[np.searchsorted(sorted_labels, label) : np.searchsorted(sorted_labels, label, side="right")]
        start = np.searchsorted(node_labels, label)
        nodes = nodes_by_label[start : start + sizes[label]]
        ends = np.searchsorted(nodes, left[inside]), np.searchsorted(nodes, right[inside])
        parts = _tighten(len(nodes), ends, far[inside], max_group)
        labels[nodes] = nodes[parts]
        report.append(SplitComponent(int(label), int(sizes[label]), len(np.unique(parts))))
    return labels, report


def _tighten(n: int, edges: tuple[np.ndarray, np.ndarray], distance: np.ndarray, max_group: int) -> np.ndarray:
    """Split a component by dropping its longest edges, then by index; return the labels."""
    lowest, highest = float(distance.min()), float(distance.max())
    labels = np.zeros(n, dtype=np.int64)
    for step in range(STEPS - 1, -1, -1):
        over = np.bincount(labels, minlength=n)[labels] > max_group
        if not over.any():
            return labels
        most = lowest + (highest - lowest) * step / STEPS
        # An edge inside a part within the limit stays, whatever its distance.
        kept = (labels[edges[0]] == labels[edges[1]]) & (~over[edges[0]] | (distance <= most))
        edges, distance = (edges[0][kept], edges[1][kept]), distance[kept]
        labels = components(n, edges)
    for label in np.flatnonzero(np.bincount(labels, minlength=n) > max_group):
        nodes = np.flatnonzero(labels == label)
        labels[nodes] = nodes[np.arange(len(nodes)) // max_group * max_group]
    return labels
