"""How a listing is cut into shards, and found again after a kill."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.recipe.parts import Ingest
from pairmill.tasks.collect.ingest import SHARD_BYTES, most_units, new_portions

SIZES = st.lists(st.sampled_from([0, 10, SHARD_BYTES // 3, SHARD_BYTES, 2 * SHARD_BYTES]), max_size=40)


def portions(sizes: list[int], new: list[bool], most: int) -> list[list[int]]:
    return [list(rows) for rows in new_portions(np.array(sizes, np.int64), np.array(new, bool), most)]


@given(SIZES, st.integers(1, 8))
def test_every_new_unit_is_in_one_shard_within_its_bounds(sizes: list[int], most: int):
    shards = portions(sizes, [True] * len(sizes), most)
    assert [row for shard in shards for row in shard] == list(range(len(sizes)))
    for shard in shards:
        assert len(shard) <= most
        assert len(shard) == 1 or sum(sizes[row] for row in shard) <= SHARD_BYTES


@given(SIZES, st.integers(1, 8))
def test_a_shard_is_as_full_as_its_bounds_allow(sizes: list[int], most: int):
    shards = portions(sizes, [True] * len(sizes), most)
    for shard, following in pairwise(shards):
        more = sum(sizes[row] for row in [*shard, following[0]])
        assert len(shard) == most or more > SHARD_BYTES


@given(SIZES, st.integers(1, 8), st.data())
def test_after_a_kill_the_shards_that_were_not_committed_come_back_as_they_were(
    sizes: list[int], most: int, data: st.DataObject
):
    shards = portions(sizes, [True] * len(sizes), most)
    left = [shard for shard in shards if data.draw(st.booleans())]
    rows = {row for shard in left for row in shard}
    assert portions(sizes, [row in rows for row in range(len(sizes))], most) == left


def test_a_large_source_has_larger_shards_unless_the_recipe_names_their_size():
    usual = Ingest().documents_per_shard
    sizes = [most_units(usual, listed) for listed in (10, 100_000, 500_000, 1_000_000, 300_000_000)]
    assert sizes == [1_000, 1_000, 5_000, 10_000, 10_000] and most_units(7, 1_000_000) == 7


def test_new_units_scattered_among_old_ones_share_shards():
    shards = portions([10] * 40, [row % 4 == 0 for row in range(40)], most=5)
    assert [len(shard) for shard in shards] == [5, 5]
