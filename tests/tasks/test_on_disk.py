"""A sample that lies on disk is the sample, and trains the same centroids."""

from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.whole import kmeans
from pairmill.tasks.run.items.rows import on_disk, to_blobs


@given(blocks=st.lists(st.integers(0, 5), max_size=6), d=st.integers(1, 8), seed=st.integers(0, 99))
def test_blocks_are_read_back_in_order(tmp_path_factory, blocks: list[int], d: int, seed: int):
    rng = np.random.default_rng(seed)
    parts = [rng.normal(size=(n, d)).astype("<f2") for n in blocks]
    stored = on_disk(map(to_blobs, parts), tmp_path_factory.mktemp("sample") / "sample")
    wanted = np.concatenate(parts) if sum(blocks) else np.empty((0, 0))
    assert np.array_equal(stored, wanted)


def test_two_levels_on_disk_give_the_centroids_of_memory(tmp_path: Path):
    vectors = np.random.default_rng(0).normal(size=(3000, 16)).astype("<f2")
    stored = on_disk([to_blobs(vectors[:1000]), to_blobs(vectors[1000:])], tmp_path / "sample")
    assert isinstance(stored, np.memmap)
    for k, limit in ((20, 64), (200, 64)):
        in_memory = kmeans.train(vectors.astype(np.float32), k, flat_limit=limit)
        assert np.array_equal(kmeans.train(stored, k, flat_limit=limit), in_memory)
