"""What does not fit into memory: a folder for each DuckDB, none left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.side_folders import spill_folder
from tests.worlds.shared import opened_new

ROWS = "SELECT hash(range) AS h, repeat('x', 40) AS x FROM range(2_000_000)"
SORT = f"CREATE OR REPLACE TEMP TABLE big AS {ROWS} ORDER BY h"


def small(path: Path) -> Lake:
    lake = opened_new(path)
    lake.execute("SET memory_limit = '60MB'; SET threads = 1")
    return lake


def spilled(path: Path) -> list[Path]:
    return sorted(path.glob(".spill-*"))


@pytest.mark.slow
def test_two_that_spill_at_once_keep_their_rows(tmp_path: Path):
    with small(tmp_path / "lake") as one, small(tmp_path / "lake") as two:
        one.execute(SORT)
        two.execute(SORT)
        assert len(spilled(tmp_path / "lake")) == 2
        seen = "SELECT count(*), count(DISTINCT h), min(x), max(x) FROM big"
        assert one.query(seen) == two.query(seen) == [(2_000_000, 2_000_000, "x" * 40, "x" * 40)]
        two.close()
        assert one.query(seen) == [(2_000_000, 2_000_000, "x" * 40, "x" * 40)]


def test_nothing_is_left_when_a_lake_is_closed(tmp_path: Path):
    with small(tmp_path / "lake") as lake:
        lake.execute(SORT)
        assert spilled(tmp_path / "lake")
    assert not spilled(tmp_path / "lake")


def test_what_a_killed_process_left_is_removed_and_that_of_a_running_one_is_not(tmp_path: Path):
    code = (
        "import os, sys; from pairmill.catalog.lake.side_folders import spill_folder; "
        "path = spill_folder(sys.argv[1]); os.makedirs(path); "
        "open(path + '/duckdb_temp_storage_DEFAULT-0.tmp', 'w').write('left'); print(path)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True)
    left, mine = Path(done.stdout.strip()), Path(spill_folder(str(tmp_path)))
    foreign = tmp_path / f".spill-elsewhere-1-{done.returncode}{'0' * 31}"
    assert not left.exists()  # `folder` above has removed it
    os.makedirs(left), os.makedirs(mine), os.makedirs(foreign)
    create_or_open(tmp_path).close()
    assert (left.exists(), mine.exists(), foreign.exists()) == (False, True, True)
