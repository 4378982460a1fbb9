"""Small shards joined into one item: a model has them together, what is written is what it would be of each alone."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.pending.item import WorkItem, join
from pairmill.catalog.write.commit import Manifest, Usage
from pairmill.ops.fault import Fault
from pairmill.tasks.run.items.partition import Output, Part, with_seconds, write_parts
from pairmill.tasks.run.items.payloads import payloads
from pairmill.tasks.run.items.rows import quarantine
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.resources import Node, Resources, count_in_flight
from pairmill.tasks.run.stage import LEAST_ROWS, JobStage, join_small
from tests.examples import examples
from tests.worlds.noise import picture
from tests.worlds.placements import FED
from tests.worlds.sleeping_model import Sleeps, noted

SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=20)


class Elsewhere(Sleeps):
    """The sleeping model behind a server."""

    max_in_flight = 8


def shards(sizes: Sequence[int], tables: Sequence[tuple[str, ...]] = ()) -> list[WorkItem]:
    made = []
    for n, size in enumerate(sizes):
        keys = tuple(f"{n}-{row}" for row in range(size))
        lacking = tables[n % len(tables)] if tables else ()
        made.append(WorkItem(f"shard-{n}", keys, (f"file-{n}",), lacking, {"texts": [f"of {key}" for key in keys]}))
    return made


@given(SIZES, st.integers(1, 200), st.integers(1, 12), st.booleans())
@examples(60)
def test_no_row_is_lost_or_moved_and_no_item_is_larger_than_it_may_be(sizes: list, most: int, workers: int, two: bool):
    items = shards(sizes, [("a",), ("a", "b")] if two else [])
    found = join_small(items, most, workers)
    assert [home for item in found for home in item.by_shard] == items
    assert all(len(item.keys) <= most for item in found if item.joined)
    share = max(LEAST_ROWS, -(-sum(sizes) // workers))
    assert all(len(item.keys) <= share for item in found if item.joined), "every worker has its share"
    assert all(home.tables == item.tables for item in found for home in item.by_shard)
    for item in found:
        assert item.inputs["texts"] == [f"of {key}" for key in item.keys]
        assert item.keys == tuple(key for home in item.by_shard for key in home.keys)
    if not two:  # neighbours that would fit into one item are in one
        assert all(len(a.keys) + len(b.keys) > min(most, share) for a, b in pairwise(found))


@given(SIZES, st.data())
@examples(40)
def test_a_part_of_a_joined_item_is_joined_of_the_parts_that_are_left(sizes: list, data: st.DataObject):
    items = shards(sizes)
    whole = join(items)
    kept = data.draw(st.lists(st.sampled_from(whole.keys), min_size=1, unique=True))
    part = whole.only(kept)
    assert part.keys == tuple(kept) and part.inputs["texts"] == [f"of {key}" for key in kept]
    if len(items) > 1:
        assert sorted(key for home in part.joined for key in home.keys) == sorted(kept)
        assert all(home.keys and home.shard == f"shard-{home.keys[0].partition('-')[0]}" for home in part.joined)


def parts_of(item: WorkItem) -> list[Part]:
    """What a captioner writes of an item: a row a key with its tokens, and a complaint of every seventh."""
    n = len(item.keys)
    rows = pa.table({"sha256": item.keys, "text": item.inputs["texts"], "n_tokens": pa.array([3] * n, pa.int32())})
    bad = [Fault(key, "undecodable", "") for key in item.keys if key.endswith("7")]
    columns = {name: [""] * n for name in ("captioner", "prompt", "status", "finish_reason")}
    columns |= {"seconds": [0.0] * n, "prompt_tokens": [5] * n, "retries": [0] * n}
    for name, values in columns.items():
        rows = rows.append_column(name, pa.array(values))
    made = [Part("captions", rows, "scorer", Usage(5 * n, 3 * n))]
    return [*made, *([Part("quarantine", quarantine("captions", bad))] if bad else [])]


def written(items: Sequence[WorkItem], folder: str) -> dict[tuple[str, str], tuple[Manifest, list[dict]]]:
    found = {}
    for item in items:
        for each in with_seconds(write_parts(parts_of(item), item, Output(f"{folder}/", "run", 7)), 1.0):
            rows = pq.read_table(each.path, partitioning=None).to_pylist()
            assert (each.table, each.partition_id) not in found
            found[each.table, each.partition_id] = each, rows
    return found


@given(SIZES)
@examples(40)
def test_what_is_written_of_a_joined_item_is_what_is_written_of_each_of_its_shards(sizes: list):
    items = shards(sizes)
    with TemporaryDirectory() as folder:
        alone, together = written(items, f"{folder}/alone"), written([join(items)], f"{folder}/together")
    assert alone.keys() == together.keys()
    for key, (manifest, rows) in alone.items():
        other, its = together[key]
        assert its == rows and (other.shard, other.rows) == (manifest.shard, manifest.rows)
        assert other.usage == manifest.usage, "each has its own tokens"
    seconds = sum(manifest.seconds for manifest, _ in together.values() if manifest.table == "captions")
    assert abs(seconds - 1.0) < 1e-3 * len(items), "and a share of the item's time"


def test_two_items_of_one_shard_joined_have_their_own_share_of_its_time(tmp_path: Path):
    whole = shards([35])[0]
    found = written([join([whole.only(whole.keys[:25]), whole.only(whole.keys[25:])])], str(tmp_path))
    assert sorted((m.rows, m.seconds) for m, _ in found.values() if m.table == "captions") == [
        (10, 0.2857),
        (25, 0.7143),
    ]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=9), *[st.integers(0, 10**6)] * 4)
@examples(60)
def test_shares_of_tokens_are_whole_and_add_up(sizes: list, prompt: int, tokens: int, discarded: int, retries: int):
    whole, total, done = Usage(prompt, tokens, discarded, retries), sum(sizes), 0
    shares = []
    for size in sizes:
        shares.append(whole.of_rows(done, done + size, total))
        done += size
    found = Usage()
    for share in shares:
        found += share
    assert found == whole


def test_a_model_behind_a_server_has_small_shards_together_and_one_on_a_cpu_each_alone(tmp_path: Path):
    items = [WorkItem(f"shard-{n}", (f"{n}-a", f"{n}-b")) for n in range(66)]
    with JobStage(Sleeps(str(tmp_path)), Placement(workers=2)) as stage:
        assert stage.sized(items) == items
    with JobStage(Elsewhere(str(tmp_path)), Placement(workers=2)) as stage:
        found = stage.sized(items)
        assert len(found) == 3 and [home for item in found for home in item.by_shard] == items
        results = [each for made in stage.run(found, Output(f"{tmp_path}/out/", "run", 1)) for each in made]
    assert Counter(each.shard for each in results) == {item.shard: 1 for item in items}
    for each in results:
        rows = pq.read_table(each.path, partitioning=None)
        assert rows["sha256"].to_pylist() == [f"{each.shard.removeprefix('shard-')}-{row}" for row in "ab"]
        assert set(rows["shard"].to_pylist()) == {each.shard}


def test_a_row_that_kills_its_worker_in_a_joined_item_costs_its_neighbours_of_other_shards_nothing(tmp_path: Path):
    items = [WorkItem(f"shard-{n}", (f"{n}-a", "dies" if n == 5 else f"{n}-b")) for n in range(30)]
    (joined,) = join_small(items, 64, 1)
    with JobStage(Sleeps(str(tmp_path)), FED) as stage:
        results = [each for made in stage.run([joined], Output(f"{tmp_path}/out/", "run", 1)) for each in made]
    rows = {table: [] for table in ("image_embedding", "quarantine")}
    for each in results:
        rows[each.table] += pq.read_table(each.path, partitioning=None).to_pylist()
    good = {row["sha256"]: row["shard"] for row in rows["image_embedding"]}
    assert good == {key: item.shard for item in items for key in item.keys if key != "dies"}
    assert [(row["item"], row["reason"]) for row in rows["quarantine"]] == [("dies", "poison")]
    assert len(noted(tmp_path, "loads")) >= 2


def test_pictures_of_a_joined_item_are_read_of_each_shards_own_file(tmp_path: Path):
    from pairmill.catalog.terms.ids import content_id

    items, expected = [], {}
    for n in range(3):
        blobs = {content_id(data): data for data in (picture(10 * n + m) for m in range(4))}
        columns = {"sha256": [*blobs], "bytes": [*blobs.values()], "uri": ["u"] * 4, "offset": [0] * 4,
                   "length": [len(data) for data in blobs.values()]}  # fmt: skip
        path = str(tmp_path / f"{n}.parquet")
        pq.write_table(pa.table(columns), path)
        keys = (*sorted(blobs)[:2], f"gone-{n}")
        expected |= {sha: blobs[sha] for sha in keys[:2]}
        items.append(WorkItem(f"shard-{n}", keys, (path,)))
    found = {sha: data for shas, datas in payloads(join(items)) for sha, data in zip(shas, datas, strict=True)}
    assert {sha: data for sha, data in found.items() if isinstance(data, bytes)} == expected
    gone = {sha: data for sha, data in found.items() if isinstance(data, Fault)}
    assert sorted(gone) == ["gone-0", "gone-1", "gone-2"]
    assert all(f"of shard 'shard-{sha[-1]}'" in fault.detail for sha, fault in gone.items())


def test_items_are_shared_out_over_the_cards_that_there_are():
    cluster = [Node(64, 0), Node(16, 8), Node(16, 8)]
    assert count_in_flight(Resources(2, 1, 1, 10_000, lanes=3), cluster) == 3 * 16
    assert count_in_flight(Resources(2, 0.25, 1, 10_000, lanes=3), cluster) == 3 * 16, "CPUs are what lacks here"
    assert count_in_flight(Resources(2, 1, 1, 4, lanes=3), cluster) == 3 * 4
    assert count_in_flight(Resources(2, 0, 1, 1, lanes=3), [Node(8, 0)]) == 3
