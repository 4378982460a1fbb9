"""Open DuckDB with the extensions that a lake needs, without paying for their signatures at every open."""

import json
import os
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import duckdb

from pairmill.catalog.lake.digest import file_digest, file_stamp
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.terms.error import PairmillError

_DIGESTS = Path(__file__).with_name("extension_digests.json")


def connect(*extensions: str) -> duckdb.DuckDBPyConnection:
    """Open an in-memory DuckDB in UTC with these extensions loaded. Raises PairmillError when one is not installed.

    They are loaded by path out of their packages: nothing is installed into ~/.duckdb, so it works offline, in a
    read-only home, and processes that start together cannot race on the first install.

    DuckDB hashes 70 MB for the signatures of the two usual extensions at each LOAD: 300 ms. Files that this package
    knows by their sha256 are loaded without that in 15 ms; then the setting is closed, which DuckDB never reopens.
    Any other file (another DuckDB, another platform, a swapped one) needs its signature.
    """
    files = [_extension_file(extension) for extension in extensions]
    known = all(_is_known(file) for file in files)
    closed = {"autoinstall_known_extensions": False, "autoload_known_extensions": False}
    # One thread until `Lake` knows how large the lake is: each further one opens the SQLite catalog again per scan.
    connection = duckdb.connect(
        config={**closed, "threads": 1, **({"allow_unsigned_extensions": True} if known else {})}
    )
    for file in files:
        connection.execute(f"LOAD {quoted(str(file))}")
    connection.execute(
        f"{'SET allow_unsigned_extensions = false;' if known else ''} SET TimeZone = 'UTC';"
        # After two seconds of a query it would be drawn on standard output, into what a command answers.
        "SET enable_progress_bar = false;"
        # A file of a lake never changes, so its footer (3 kB) is read once a process: `why` asks `images` three times.
        "SET parquet_metadata_cache = true"
    )
    return connection


def _extension_file(extension: str) -> Path:
    spec = find_spec(f"duckdb_extension_{extension}")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        file = Path(folder) / "extensions" / f"v{duckdb.__version__}" / f"{extension}.duckdb_extension"
        if file.is_file():
            return file
    package = f"duckdb-extension-{extension.replace('_', '-')}"
    raise PairmillError(f"DuckDB's extension '{extension}' is missing: install {package}=={duckdb.__version__}.")


def _is_known(file: Path) -> bool:
    """Whether the file's sha256 is on this package's list.

    The digest (40 ms) is remembered with the file's stamp: whatever replaces or changes the file changes its stamp,
    since no program can set the time of change.
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
    """Return the stamps of files whose digest was found on the list, by path; {} where nothing valid is kept."""
    try:
        content = json.loads(_memory().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remember(file: str, stamp: str) -> None:
    """Keep a stamp for the next process; in a read-only home each process hashes again."""
    remembered = _remembered()
    remembered[file] = stamp
    half = _memory().with_name(f"extensions.{os.getpid()}.part")
    try:
        half.parent.mkdir(parents=True, exist_ok=True)
        half.write_text(json.dumps({path: kept for path, kept in remembered.items() if os.path.exists(path)}))
        half.replace(_memory())
    except OSError:
        return


def _memory() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pairmill" / "extensions.json"
