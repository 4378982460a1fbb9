"""Jobs over a range of clusters find what a look at every pair finds, from vectors as they lie on disk."""

from itertools import combinations
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import IndexFiles
from pairmill.tasks.relate.associate import Search
from pairmill.tasks.relate.duplicates import SemanticEdges
from pairmill.tasks.run.items.rows import to_blobs

CLUSTERS = 6
ways = pytest.mark.parametrize("is_small", [False, True], ids=["row groups of the range", "all rows, once"])


def files_of(folder: Path, *names: str, is_small: bool) -> IndexFiles:
    return IndexFiles(tuple(str(folder / f"{name}.parquet") for name in names), is_small)


def index(path: Path, name: str, n: int, seed: int, commit: int = 0) -> tuple[list[str], np.ndarray, np.ndarray]:
    """A file of ``n`` vectors sorted by cluster, with keys that begin with ``name``: (keys, vectors, clusters)."""
    rng = np.random.default_rng(seed)
    vectors = rng.standard_normal((n, 8))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)
    clusters = np.sort(rng.integers(0, CLUSTERS, n))
    keys = [f"{name}{row}" for row in range(n)]
    table = {"key": keys, "cluster": pa.array(clusters, pa.int32()), "index_vector": to_blobs(vectors)}
    pq.write_table(pa.table(table | {"commit": pa.array([commit] * n, pa.int64())}), path, row_group_size=16)
    return keys, vectors.astype(np.float32), clusters


@ways
def test_a_range_of_sentence_clusters_gives_each_picture_its_nearest_of_the_cluster_it_probes(
    tmp_path: Path, is_small: bool
):
    parts = [index(tmp_path / f"s{n}.parquet", f"s{n}-", 60, n) for n in range(2)]
    texts = [key for keys, _, _ in parts for key in keys]
    vectors, clusters = (np.concatenate([part[n] for part in parts]) for n in (1, 2))
    pictures, queries, probed = index(tmp_path / "p.parquet", "p", 30, 7)
    files = [files_of(tmp_path, *names, is_small=is_small) for names in (("s0", "s1"), ("p",))]
    item = WorkItem("range", (), inputs={"range": (1, 4), "done": -1, "files": files, "groups": (), "known": ()})
    (found,) = Search(3, "scorer")(item)
    expected = {}
    for key, query, cluster in zip(pictures, queries, probed, strict=True):
        if 1 <= cluster <= 4:
            inside = np.flatnonzero(clusters == cluster)
            best = inside[np.argsort(-(vectors[inside] @ query))][:3]
            expected |= {(key, texts[row]): float(vectors[row] @ query) for row in best}
    got = {(row["sha256"], row["content"]): row["similarity"] for row in found.rows.to_pylist()}
    assert got == pytest.approx(expected, abs=1e-4)


@ways
def test_copies_of_one_sentence_are_one_candidate_beside_which_others_have_room(tmp_path: Path, is_small: bool):
    texts, vectors, clusters = index(tmp_path / "s.parquet", "s", 60, 1)
    pictures, queries, probed = index(tmp_path / "p.parquet", "p", 30, 7)
    copies = {text: f"group {n % 4}" for n, text in enumerate(texts) if n % 3}
    # A group reaches over clusters; its members of a cluster stand in the order of clusters, as the lake stores them.
    rows = {"content": list(copies), "group_id": list(copies.values()),
            "cluster": pa.array([clusters[texts.index(text)] for text in copies], pa.int32())}  # fmt: skip
    pq.write_table(pa.table(rows), tmp_path / "g.parquet", row_group_size=8)
    files = [files_of(tmp_path, name, is_small=is_small) for name in "sp"]
    grouped = {"files": files, "groups": (str(tmp_path / "g.parquet"),)}
    (found,) = Search(3, "scorer")(WorkItem("range", (), inputs={"range": (1, 4), "done": -1, "known": (), **grouped}))
    expected = {}
    for key, query, cluster in zip(pictures, queries, probed, strict=True):
        inside = np.flatnonzero(clusters == cluster) if 1 <= cluster <= 4 else np.empty(0, int)
        nearest: dict[str, int] = {}
        for row in inside[np.argsort(-(vectors[inside] @ query), kind="stable")]:
            nearest.setdefault(copies.get(texts[row], texts[row]), row)
        expected |= {(key, texts[row]): float(vectors[row] @ query) for row in list(nearest.values())[:3]}
    got = {(row["sha256"], row["content"]): row["similarity"] for row in found.rows.to_pylist()}
    assert got == pytest.approx(expected, abs=1e-4)


def best(rows: pa.Table, n: int = 3) -> dict[str, list[str]]:
    """Return the ``n`` most similar sentences of each picture, best first."""
    by_picture: dict[str, list[str]] = {}
    for row in sorted(rows.to_pylist(), key=lambda row: (-row["similarity"], row["content"])):
        by_picture.setdefault(row["sha256"], []).append(row["content"])
    return {picture: texts[:n] for picture, texts in by_picture.items()}


def test_searches_night_by_night_leave_the_best_of_one_search_and_a_night_adds_only_such(
    tmp_path: Path,
):
    nights = range(6)
    written: list[Path] = []
    for night in nights:
        index(tmp_path / f"s{night}.parquet", f"s{night}-", 40, night, commit=night)
        index(tmp_path / f"p{night}.parquet", f"p{night}-", 6, 100 + night, commit=night)
        names = ([f"{kind}{n}" for n in range(night + 1)] for kind in "sp")
        files = [files_of(tmp_path, *of_kind, is_small=night % 2 == 0) for of_kind in names]
        inputs = {"range": (1, 4), "files": files, "groups": ()}
        known = tuple(map(str, written))
        (found,) = Search(3, "scorer")(WorkItem("range", (), inputs=inputs | {"done": night - 1, "known": known}))
        of_search = [("shard", "==", "range"), ("scorer", "==", "scorer")]
        before = [pq.read_table(path, columns=found.rows.column_names, filters=of_search) for path in written]
        so_far = best(pa.concat_tables([*before, found.rows]))
        assert all(row["content"] in so_far[row["sha256"]] for row in found.rows.to_pylist())
        of_range = {"shard": ["range"] * found.rows.num_rows, "scorer": ["scorer"] * found.rows.num_rows}
        written.append(tmp_path / f"found{night}.parquet")
        others = [{"sha256": "p0-0", "content": "x", "similarity": 9.0, "shard": name, "scorer": scorer}
                  for name, scorer in (("other", "scorer"), ("range", "another"))] * 3  # fmt: skip
        table = pa.table({name: found.rows[name] for name in found.rows.column_names} | of_range)
        pq.write_table(pa.concat_tables([table, pa.Table.from_pylist(others, table.schema)]), written[-1])
        (whole,) = Search(3, "scorer")(WorkItem("range", (), inputs=inputs | {"done": -1, "known": ()}))
        assert so_far == best(whole.rows)


@ways
def test_a_range_of_picture_clusters_gives_every_pair_as_near_as_asked_within_a_cluster(tmp_path: Path, is_small: bool):
    keys, vectors, clusters = index(tmp_path / "i.parquet", "i", 80, 3)
    files = files_of(tmp_path, "i", is_small=is_small)
    item = WorkItem("range", (), inputs={"range": (0, 3), "done": -1, "files": files})
    (found,) = SemanticEdges(0.5, 1_000, "duplicate_edges", "scorer")(item)
    expected = {
        frozenset((keys[a], keys[b]))
        for a, b in combinations(range(len(keys)), 2)
        if clusters[a] == clusters[b] <= 3 and vectors[a] @ vectors[b] >= 0.5
    }
    assert {frozenset((row["a"], row["b"])) for row in found.rows.to_pylist()} == expected
