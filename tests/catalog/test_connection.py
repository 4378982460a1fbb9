"""DuckDB opens with extensions that are on the package's list without their signature; pyarrow works without pandas."""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import distribution, files, version
from pathlib import Path

import duckdb
import pytest

from pairmill.catalog.lake import connection
from pairmill.catalog.lake.connection import VERSION, connect
from pairmill.catalog.terms.error import PairmillError
from tests.worlds.shared import opened_new

QUERIES = Path(__file__).resolve().parents[2] / "infra/docs/queries.md"


@pytest.fixture
def swapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The sqlite extension as a file of its own, known and remembered, and then changed in a byte."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = Path(shutil.copy(connection._extension_file("sqlite_scanner"), tmp_path))
    monkeypatch.setattr(connection, "_extension_file", lambda name: file)
    connect("sqlite_scanner").close()
    assert str(file) in (tmp_path / "cache/pairmill/extensions.json").read_text()
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "changed").write_bytes(data)
    (tmp_path / "changed").replace(file)  # the other one is mapped into this process
    yield file


def test_a_swapped_extension_is_refused_though_its_path_was_remembered(swapped: Path) -> None:
    with pytest.raises(duckdb.IOException, match=r"signature|signed"):
        connect("sqlite_scanner")


def test_no_unsigned_extension_can_be_loaded_behind_the_known_ones(swapped: Path, monkeypatch) -> None:
    monkeypatch.undo()
    with connect("ducklake") as opened:
        with pytest.raises(duckdb.Error, match="Cannot change allow_unsigned_extensions"):
            opened.execute("SET allow_unsigned_extensions = true")
        with pytest.raises(duckdb.IOException, match=r"signature|signed"):
            opened.execute(f"LOAD '{swapped}'")


def test_in_a_home_that_cannot_be_written_each_process_hashes_again(tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with connect("sqlite_scanner") as opened:
        assert opened.execute("SELECT 1").fetchall() == [(1,)]


def test_arrays_are_built_without_pandas_and_who_imports_it_later_has_it() -> None:
    script = (
        "import sys, pyarrow as pa\n"
        "from pairmill.catalog.lake.literals import work_without_pandas\n"
        "work_without_pandas()\n"
        "found = pa.table({'a': pa.array([1, None])})\n"
        "print('pandas' in sys.modules, found.to_pandas()['a'].isna().tolist())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False [False, True]\n"


def test_an_environment_of_the_packages_that_the_docs_name_opens_a_lake_offline(tmp_path: Path) -> None:
    """A program without Pairmill's other packages, without a network, in a home of its own."""
    with opened_new(tmp_path / "lake") as lake:
        lake.execute("INSERT INTO pairs BY NAME SELECT '30m' AS dataset, 1 AS version, 'a' AS image_id")
    page = QUERIES.read_text(encoding="utf-8")
    (program,) = re.findall(r"```py\n(.*?)```", page, re.DOTALL)
    (line,) = re.findall(r"```\n(pip install duckdb==.*)\n```", page)
    names = line.split()[2:]
    assert {name.partition("==")[2] for name in names} == {VERSION} == {version("duckdb")}
    (tmp_path / "packages").mkdir()
    for name in names:
        for file in {str(file).partition("/")[0] for file in files(name.partition("==")[0]) or ()} - {".."}:
            (tmp_path / "packages" / file).symlink_to(Path(str(distribution("duckdb").locate_file(file))))
    nowhere = {"HOME": str(tmp_path), "PYTHONPATH": str(tmp_path / "packages"), "HTTP_PROXY": "http://127.0.0.1:9"}
    command = [sys.executable, "-S", "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=nowhere, capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith("[(1,)]\n"), done.stderr  # a slow machine is shown a bar before it


def test_a_duckdb_without_packages_of_its_extensions_is_told_with_the_line_that_works(monkeypatch) -> None:
    monkeypatch.setattr(duckdb, "__version__", "2.0.1")
    with pytest.raises(
        PairmillError, match=r"DuckDB 2\.0\.1 has no extension 'ducklake' .* pip install duckdb==1\.5\.5 "
    ):
        connect("ducklake")
