from pathlib import Path

import pyarrow as pa

from catalog.attach import connect
from tasks.partition import write_file


def test_a_file_can_tell_that_it_does_not_hold_an_id(tmp_path: Path):
    path = str(tmp_path / "rows.parquet")
    rows = pa.table({"sha256": [f"{n:032x}" for n in range(0, 2000, 2)], "sharpness": [1.0] * 1000})
    assert write_file(path, rows) == Path(path).stat().st_size
    connection = connect()
    absent = [f"{n:032x}" for n in range(1, 1999, 2)]
    probe = "SELECT count(*) FROM parquet_bloom_probe(?, 'sha256', ?) WHERE bloom_filter_excludes"
    told = sum(connection.execute(probe, [path, key]).fetchall()[0][0] for key in absent[:200])
    assert told >= 190
    assert connection.execute(probe, [path, f"{4:032x}"]).fetchall() == [(0,)]
