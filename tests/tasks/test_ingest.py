"""A unit of any size: its rows are written as they come, and are the rows that it would have been at once."""

from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.recipe.parts import Ingest
from pairmill.ops.ban_list import BanList
from pairmill.ops.read.source import open_source
from pairmill.ops.text.split import SentenceSplitter
from pairmill.tasks.collect import ingest
from pairmill.tasks.collect.ingest import IngestSettings, IngestUnits, reader_names, shard_item
from pairmill.tasks.run.items.partition import Output, Part, write_parts
from tests.worlds.packed import sample, tar
from tests.worlds.samples import jpeg, write

READERS = reader_names(Ingest())

TABLES = {"documents", "images", "inputs", "links", "payloads", "quarantine", "sentences"}
Shard = tuple[IngestUnits, WorkItem]


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    """A list of 500 rows, every tenth without an address; a tar of 60 pictures, ten of them twice and one bad."""
    rows = [f"{f'https://x.example/{n}.jpg' if n % 10 else ''},Row {n} of all. It says {n}." for n in range(500)]
    pictures = [jpeg(size=(8 + n % 50, 6)) if n != 30 else b"no picture" for n in range(60)]
    samples = [member for n, data in enumerate(pictures) for member in sample(f"{n:03}", data, f"Number {n}.")]
    files = {"list.csv": "\n".join(["url,caption", *rows]), "made.tar": tar(samples)}
    source = open_source(str(write(tmp_path / "source", files)))
    job = IngestUnits(source, IngestSettings(10**6, 10**6, SentenceSplitter(), "copy", BanList(), READERS))
    return job, shard_item(list(source.listed()), "shard")


def written(parts: Iterable[Part], item: WorkItem, folder: Path) -> dict[str, tuple[str, pa.Table]]:
    """Partition and rows of every table, in order."""
    made = write_parts(parts, item, Output(f"{folder}/", "run", 1))
    tables = {each.table: pq.ParquetFile(each.path).read() for each in made}
    assert {each.table: each.rows for each in made} == {name: rows.num_rows for name, rows in tables.items()}
    return {each.table: (each.partition_id, tables[each.table]) for each in made}


def test_more_rows_than_are_held_at_once_are_the_same_rows_in_the_same_order(
    shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job, item = shard
    at_once = list(job(item))
    assert len(at_once) == len(TABLES) and {part.table for part in at_once} == TABLES
    monkeypatch.setattr(ingest, "PART_BYTES", 10_000)
    piecemeal = list(job(item))
    assert max(part.rows.num_rows for part in piecemeal) <= 20
    n = Counter(part.table for part in piecemeal)
    assert min(n[table] for table in TABLES - {"inputs"}) > 1
    # What says that the units were read comes when they were.
    assert piecemeal[-1].table == "inputs" and n["inputs"] == 1
    whole = written(at_once, item, tmp_path / "whole")
    assert whole["documents"][1].num_rows == 450 + 60 and whole["payloads"][1].num_rows == 60 - 10 - 1
    assert written(piecemeal, item, tmp_path / "parts") == whole


def test_a_reading_that_ends_early_is_done_again_wholly(shard: Shard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ingest, "PART_BYTES", 10_000)
    job, item = shard

    def interrupted() -> Iterator[Part]:
        for n, part in enumerate(job(item)):
            if n == 20:
                raise KeyboardInterrupt
            yield part

    with pytest.raises(KeyboardInterrupt):
        written(interrupted(), item, tmp_path / "lake")
    assert written(job(item), item, tmp_path / "lake") == written(job(item), item, tmp_path / "other")
