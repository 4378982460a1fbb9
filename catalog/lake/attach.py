"""Attach a lake to an open DuckDB connection: the ATTACH itself, a pinned snapshot, S3 credentials."""

import os
from urllib.parse import urlsplit

import duckdb

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.location import Location

_READER = ["READ_ONLY", "CREATE_IF_NOT_EXISTS false"]


def attach(
    connection: duckdb.DuckDBPyConnection, location: Location, read_only: bool, snapshot: int | None = None
) -> None:
    """ATTACH the lake as `lake` and USE it; create a missing lake unless ``read_only``.

    A reader may name a ``snapshot`` to see all tables as of then; None is the newest at each statement.

    DuckLake resolves a relative data path against the working directory. The stored data path is therefore absolute,
    for plain DuckDB readers, and is overridden here by the lake's current location. File paths are stored relative to
    the data path.
    """
    options = _READER if read_only else [] if location.on_postgres else ["META_JOURNAL_MODE 'wal'"]
    options = options if snapshot is None else [*options, f"SNAPSHOT_VERSION {snapshot:d}"]
    _attach(connection, location, "lake", options)


def attach_pinned(connection: duckdb.DuckDBPyConnection, location: Location, name: str) -> None:
    """ATTACH the lake a second time at its current snapshot as ``name``, and USE that, to read while others commit.

    No statement may use both attachments: if another process closed the lake meanwhile, one attachment would wait for
    the other's lock.
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
