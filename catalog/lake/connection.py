"""Open DuckDB with the extensions that a lake needs, without verifying their signatures at every open."""

import json
import os
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import duckdb

from pairmill.catalog.lake.digest import file_digest, file_stamp
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.whole_file import cache_home, whole_file

_DIGESTS = Path(__file__).with_name("extension_digests.json")


def connect(*extensions: str) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB in UTC and load the extensions. Raise PairmillError if an extension is not installed.

    Extensions are loaded by path from their Python packages. Nothing is installed into ~/.duckdb, so loading works
    offline and in a read-only home, and processes that start together cannot race on a first install.

    At each LOAD, DuckDB hashes 70 MB to verify the signatures of the two usual extensions: 300 ms. Files whose sha256
    this package knows are loaded without that check in 15 ms; then the setting is closed, and DuckDB cannot reopen it.
    Any other file (another DuckDB, another platform, a replaced file) must have a valid signature.
    """
    files = [_extension_file(extension) for extension in extensions]
    known = all(_is_known(file) for file in files)
    closed = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    # One thread until `Lake` knows the lake's size: each further thread opens the SQLite catalog again per scan.
    connection = duckdb.connect(
        config={**closed, "threads": 1, **({"allow_unsigned_extensions": True} if known else {})}
    )
    for file in files:
        connection.execute(f"LOAD {quoted(str(file))}")
    connection.execute(
        f"{'SET allow_unsigned_extensions = false;' if known else ''} SET TimeZone = 'UTC';"
        # DuckDB would draw the bar on standard output after two seconds, into a command's output.
        "SET enable_progress_bar = false;"
        # Files of a lake never change, so each footer (3 kB) is read once per process: `why` reads `images` three
        # times.
        "SET parquet_metadata_cache = true"
    )
    return connection


def _extension_file(extension: str) -> Path:
    """Return the path of an installed extension. Raise PairmillError if its package is not installed."""
    spec = find_spec(f"duckdb_extension_{extension}")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"
        if file.is_file():
            return file
    package = f"duckdb-extension-{extension.replace('_', '-')}"
    raise PairmillError(f"DuckDB's extension '{extension}' is missing: install {package}=={duckdb.__version__}.")


def _is_known(file: Path) -> bool:
    """Return whether the file's sha256 is on this package's list.

    Hashing takes 40 ms, so the result is cached with the file's stamp. Whatever replaces or changes the file changes
    the stamp, because no program can set a file's change time (ctime).
    """
    remembered = _remembered()
    try:
        stamp = file_stamp(str(file))
        if remembered.get(str(file)) != stamp:
            if file_digest(str(file)) not in json.loads(_DIGESTS.read_text(encoding="utf-8")):
                return False
            _remember(str(file), stamp)
    except OSError:
        return False
    return True


@cache
def _remembered() -> dict[str, str]:
    """Read the cached stamps of verified extension files, by path; {} without a valid cache."""
    try:
        content = json.loads(_memory().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remember(file: str, stamp: str) -> None:
    """Cache the stamp of a verified extension file; without a writable home, every process hashes the file again."""
    remembered = _remembered()
    remembered[file] = stamp
    present = {path: kept for path, kept in remembered.items() if os.path.exists(path)}
    with suppress(OSError):
        _memory().parent.mkdir(parents=True, exist_ok=True)
        with whole_file(_memory()) as half:
            half.write_text(json.dumps(present))


def _memory() -> Path:
    """Return the file that lists the extension files whose digests were verified."""
    return cache_home() / "extensions.json"
