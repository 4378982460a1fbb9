from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.catalog.lake.connection import connect
from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items.partition import Output, ParquetFile, Part, write_parts


def test_a_file_can_tell_that_it_does_not_hold_an_id(tmp_path: Path):
    path = str(tmp_path / "rows.parquet")
    rows = pa.table({"sha256": [f"{n:032x}" for n in range(0, 2000, 2)], "sharpness": [1.0] * 1000})
    file = ParquetFile(path)
    file.write(rows)
    path, size, digest = file.close()
    assert (size, digest) == (Path(path).stat().st_size, sha256(Path(path).read_bytes()).hexdigest())
    assert path == str(tmp_path / f"rows-{digest[:32]}.parquet")
    connection = connect()
    absent = [f"{n:032x}" for n in range(1, 1999, 2)]
    probe = "SELECT count(*) FROM parquet_bloom_probe(?, 'sha256', ?) WHERE bloom_filter_excludes"
    told = sum(connection.execute(probe, [path, key]).fetchall()[0][0] for key in absent[:200])
    assert told >= 190
    assert connection.execute(probe, [path, f"{4:032x}"]).fetchall() == [(0,)]


def test_parts_of_a_table_that_come_one_by_one_are_one_file(tmp_path: Path):
    blobs = [b"a" * 1000, b"b" * 10, b"c"]

    def parts() -> Iterator[Part]:
        for n, data in enumerate(blobs):
            row = {"sha256": [str(n)], "bytes": [data], "uri": ["u"], "offset": [0], "length": [len(data)]}
            yield Part("payloads", pa.table(row))
            yield Part("image_quality", pa.table({"sha256": []}), "scorer")

    item = WorkItem("shard", ("key",))
    payloads, nothing = write_parts(parts(), item, Output(f"{tmp_path}/", "run", 7))
    assert (payloads.table, payloads.rows, nothing.table, nothing.rows, nothing.path) == (
        "payloads", 3, "image_quality", 0, ""
    )  # fmt: skip
    assert payloads.bytes == Path(payloads.path).stat().st_size
    stored = pq.read_table(payloads.path, partitioning=None)  # pyright: ignore[reportArgumentType]
    assert stored["bytes"].to_pylist() == blobs and set(stored["commit"].to_pylist()) == {7}


def test_a_second_try_writes_beside_the_first_which_may_still_be_writing(tmp_path: Path):
    rows = {"sha256": ["a"], "phash": pa.array([1], pa.uint64()), "flat_colours": pa.nulls(1, pa.string())}
    part = Part("image_hash", pa.table(rows), "scorer")
    tries = [write_parts([part], WorkItem("shard", ("a",)), Output(f"{tmp_path}/", "run", 7)) for _ in range(2)]
    (first,), (second,) = tries
    assert first.partition_id == second.partition_id and first.path != second.path
