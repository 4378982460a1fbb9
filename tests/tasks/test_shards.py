"""How a listing is cut into shards, and found again after a kill."""

from hypothesis import given
from hypothesis import strategies as st

from tasks.ingest import SHARD_BYTES, new_portions

SIZES = st.lists(st.sampled_from([0, 10, SHARD_BYTES // 3, SHARD_BYTES, 2 * SHARD_BYTES]), max_size=40)


def listing(sizes: list[int]) -> list[tuple]:
    return [(f"page-{n:03}", size, "etag", None) for n, size in enumerate(sizes)]


@given(SIZES, st.integers(1, 8))
def test_every_new_unit_is_in_one_shard_within_its_bounds(sizes: list[int], most: int):
    listed = listing(sizes)
    shards = new_portions(listed, {row[:3] for row in listed}, most)
    assert [row for shard in shards for row in shard] == listed
    for shard in shards:
        assert len(shard) <= most
        assert len(shard) == 1 or sum(row[1] for row in shard) <= SHARD_BYTES


@given(SIZES, st.integers(1, 8), st.data())
def test_after_a_kill_the_shards_that_were_not_committed_come_back_as_they_were(
    sizes: list[int], most: int, data: st.DataObject
):
    listed = listing(sizes)
    shards = new_portions(listed, {row[:3] for row in listed}, most)
    left = [shard for shard in shards if data.draw(st.booleans())]
    assert new_portions(listed, {row[:3] for shard in left for row in shard}, most) == left


def test_new_units_scattered_among_old_ones_share_shards():
    listed = listing([10] * 40)
    shards = new_portions(listed, {row[:3] for row in listed[::4]}, most=5)
    assert [len(shard) for shard in shards] == [5, 5]
