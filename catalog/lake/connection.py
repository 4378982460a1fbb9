"""Open DuckDB with the extensions that a lake needs, and attach a lake to it: a pinned snapshot, S3 credentials.

The signatures of the extensions are not verified at every open.
"""

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import duckdb

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.location import Location
from pairmill.catalog.lake.stored_files import file_digest, file_stamp
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.whole_file import cache_on_machine

VERSION = "1.5.5"  # the newest DuckDB for which there are packages of extensions
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
    config = {**closed, "threads": 1} | ({"allow_unsigned_extensions": True} if known else {})
    connection = duckdb.connect(config=config)
    for file in files:
        connection.execute(f"LOAD {quoted(str(file))}")
    connection.execute(
        f"{'SET allow_unsigned_extensions = false;' if known else ''} SET TimeZone = 'UTC';"
        # DuckDB would draw the bar on standard output after two seconds, into a command's output. In a notebook without
        # ipywidgets it draws none, and refuses the setting.
        f"{'' if 'IPython' in sys.modules else 'SET enable_progress_bar = false;'}"
        # Files never change, so each footer (3 kB) is read once per process: `why` reads `images` three times.
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
    raise PairmillError(
        f"DuckDB {duckdb.__version__} has no extension '{extension}' in this environment: pip install "
        f"duckdb=={VERSION} duckdb-extensions=={VERSION} {package}=={VERSION}. A newer DuckDB has no such packages yet."
    )


def _is_known(file: Path) -> bool:
    """Return whether the file's sha256 is on this package's list.

    Hashing takes 40 ms, so the result is cached with the file's stamp. Whatever replaces or changes the file changes
    the stamp, because no program can set a file's change time (ctime).
    """
    path = str(file)
    try:
        key = (path, file_stamp(path))
        digest = cache_on_machine("extensions.json", key, lambda: file_digest(path), lambda each: isinstance(each, str))
    except OSError:
        return False
    return digest in json.loads(_DIGESTS.read_text(encoding="utf-8"))


_READER = ["READ_ONLY", "CREATE_IF_NOT_EXISTS false"]


def attach(connection: duckdb.DuckDBPyConnection, location: Location, read_only: bool, snapshot: int | None) -> None:
    """ATTACH the lake as `lake` and USE it; create a missing lake unless ``read_only``.

    A reader may name a ``snapshot`` to see all tables as of then; None is the newest at each statement.

    DuckLake resolves a relative data path against the working directory. The stored data path is therefore absolute,
    for plain DuckDB readers, and overridden here by the lake's current location. File paths are relative to it.
    """
    options = _READER if read_only else [] if location.on_postgres else ["META_JOURNAL_MODE 'wal'"]
    options = options if snapshot is None else [*options, f"SNAPSHOT_VERSION {snapshot:d}"]
    _attach(connection, location, "lake", options)


def attach_pinned(connection: duckdb.DuckDBPyConnection, location: Location, name: str) -> None:
    """ATTACH the lake a second time at its current snapshot as ``name``, and USE that, to read while others commit.

    No statement may use both: if another process closed the lake meanwhile, one would wait for the other's lock.
    """
    snapshot = connection.execute("SELECT id FROM ducklake_current_snapshot('lake')").fetchall()[0][0]
    _attach(connection, location, name, [*_READER, f"SNAPSHOT_VERSION {snapshot}"])


def detach_pinned(connection: duckdb.DuckDBPyConnection, name: str) -> None:
    """DETACH the snapshot that `attach_pinned` attached, and USE the lake again."""
    for statement in ("USE memory", f"DETACH DATABASE IF EXISTS {name}", "USE lake"):
        connection.execute(statement)


def _attach(connection: duckdb.DuckDBPyConnection, location: Location, name: str, options: list[str]) -> None:
    """ATTACH the lake as ``name`` with ``options`` and USE it."""
    source = f"postgres:{location.metadata}" if location.on_postgres else f"sqlite:{location.metadata}"
    options = [f"DATA_PATH {quoted(location.data_path)}", "OVERRIDE_DATA_PATH true", *options]
    connection.execute(f"USE memory; DETACH DATABASE IF EXISTS {name}")  # of an attempt that met a lock
    connection.execute(f"ATTACH {quoted('ducklake:' + source)} AS {name} ({', '.join(options)})")
    connection.execute(f"USE {name}")


def extensions_for(location: Location) -> list[str]:
    """Return the names of the DuckDB extensions that a lake at ``location`` needs."""
    metadata = "postgres_scanner" if location.on_postgres else "sqlite_scanner"
    return ["ducklake", metadata] + (["httpfs"] if location.on_s3 else [])


def use_s3_credentials(connection: duckdb.DuckDBPyConnection) -> None:
    """Set S3 keys, region and endpoint from the AWS_* variables, in the memory of this connection only."""
    environment = os.environ
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    options = {
        "KEY_ID": environment.get("AWS_ACCESS_KEY_ID"),
        "SECRET": environment.get("AWS_SECRET_ACCESS_KEY"),
        "SESSION_TOKEN": environment.get("AWS_SESSION_TOKEN"),
        "REGION": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
    }
    if endpoint:
        parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
        # Endpoints other than Amazon's (MinIO, moto, Ceph) rarely have one host name per bucket.
        options |= {"ENDPOINT": parts.netloc, "URL_STYLE": "path", "USE_SSL": str(parts.scheme == "https").lower()}
    text = ", ".join(f"{key} {quoted(value)}" for key, value in options.items() if value)
    connection.execute(f"CREATE OR REPLACE SECRET pairmill_s3 (TYPE s3, {text})")
