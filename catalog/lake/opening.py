"""Open a lake: create a missing lake, migrate an older one, refuse one of another format."""

import os
import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import duckdb

from pairmill.catalog.lake import comments, new_lake, schema, score_tables, seal, snapshot
from pairmill.catalog.lake.busy_retry import retry_while_busy, translate_error
from pairmill.catalog.lake.connection import attach, connect, extensions_for, use_s3_credentials
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import hold, holder_of
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.location import Location, locate
from pairmill.catalog.lake.metadata import Metadata
from pairmill.catalog.lake.new_lake import check_new_place
from pairmill.catalog.lake.side_folders import spill_folder
from pairmill.catalog.lake.stored_files import make_folder
from pairmill.catalog.terms.error import NewerLake, NotWritable, PairmillError
from pairmill.catalog.terms.mark import LAKE_TEXT, MARK

OPENING_ERRORS = (duckdb.Error, OSError)
WAIT_SECONDS = 60.0
MIGRATE = "migrate"


def check_is_lake(uri: str) -> None:
    """Raise PairmillError unless there is a lake at ``uri``. Opening for writing would create one in any folder.

    Attaches nothing, which takes 60 CPU ms.
    """
    location = locate(uri)
    with _translate_errors(location):
        seal.check(location)
        connection, metadata = _of_reader(location)
        metadata.close()
        connection.close()


def _connect_and_attach(
    location: Location, read_only: bool, at: int | None = None
) -> tuple[duckdb.DuckDBPyConnection, Metadata]:
    """Connect and attach. A writer creates a missing lake; a reader gets PairmillError."""
    seal.check(location)
    if read_only:
        connection, metadata = _of_reader(location)
        if at is not None:
            _check_snapshot(metadata, location, at)
        _attach(connection, location, read_only, at)
        return connection, metadata
    check_new_place(location)
    with nullcontext() if location.on_postgres else seal.opening(location):
        new_lake.copy_empty_catalog(location)
        connection = _open_duckdb(location, read_only)
        metadata = Metadata(connection, location, read_only)
    if metadata.has_lake():
        if at is not None:
            _check_snapshot(metadata, location, at)
        _attach(connection, location, read_only, at)
    else:
        with hold(metadata, location.uri, "-", "create the lake", WAIT_SECONDS):
            if not metadata.has_lake():  # another process may have created the lake meanwhile
                files = quoted(f"{location.data_path}main/**/*.parquet")
                if found := connection.execute(f"SELECT file FROM glob({files}) LIMIT 1").fetchall():
                    raise _orphaned(location, found[0][0])  # a new catalog would lack all of that data
            _attach(connection, location, read_only)
    return connection, metadata


def _of_reader(location: Location) -> tuple[duckdb.DuckDBPyConnection, Metadata]:
    """Connect to an existing lake without attaching it. Raise PairmillError if there is none."""
    if location.on_postgres or Path(location.metadata).is_file():
        connection = _open_duckdb(location, read_only=True)
        _roll_back(connection, location)
        metadata = Metadata(connection, location, read_only=True)
        if metadata.has_lake():
            return connection, metadata
        connection.close()
    if not location.on_s3 and (file := next(Path(location.data_path, "main").rglob("*.parquet"), None)):
        raise _orphaned(location, str(file))
    raise PairmillError(f"there is no lake at '{location.uri}'. Check --lake, or make one with `pairmill run`.")


def _roll_back(connection: duckdb.DuckDBPyConnection, location: Location) -> None:
    """Undo the catalog change that a killed process left half written, by its rollback journal.

    SQLite leaves such a journal when a process is killed while it makes, opens, closes or vacuums a catalog, and plays
    it back for writers only. Nothing is done while the writer lives, by SQLite's locks, or without the rights to write.
    """
    if location.on_postgres or not os.path.exists(f"{location.metadata}-journal"):
        return
    with seal.FolderLock(location.metadata), suppress(duckdb.Error):
        connection.execute(f"ATTACH {quoted(location.metadata)} AS half_written (TYPE sqlite)")
        try:
            connection.execute("SELECT count(*) FROM duckdb_tables() WHERE database_name = 'half_written'")
        finally:
            connection.execute("DETACH half_written")


@contextmanager
def _translate_errors(location: Location) -> Iterator[None]:
    """Turn errors of DuckDB and of files while a lake is opened into PairmillError with the remedy."""
    try:
        yield
    except OPENING_ERRORS as error:
        if isinstance(found := translate_error(error, location.uri), OSError):
            found = PairmillError(f"lake '{location.uri}': it cannot be opened or made there ({error}).")
        raise found from error


def _orphaned(location: Location, file: str) -> PairmillError:
    return PairmillError(
        f"lake '{location.uri}': there is data ({file}), but its catalog {location.metadata} is missing or "
        "empty. Put the catalog back from a copy, or make a new lake elsewhere; the data was not touched."
    )


def _open_duckdb(location: Location, read_only: bool) -> duckdb.DuckDBPyConnection:
    """Open DuckDB configured for this lake: extensions, S3, spill folder, caches."""
    connection = connect(*extensions_for(location))
    if location.on_s3:
        use_s3_credentials(connection)
        _reach_s3(connection, location, read_only)
    elif not read_only:
        make_folder(location.data_path)
    if not read_only:
        mark(*location.folders)
    # Spill beside the data, where there is disk space, rather than into the working directory.
    beside = tempfile.gettempdir() if read_only or location.on_s3 else os.path.dirname(location.data_path.rstrip("/"))
    connection.execute(f"SET temp_directory = {quoted(spill_folder(beside))}")
    if not read_only:
        # DuckDB would cache whatever it reads from S3, up to 80 % of the memory, which a run's workers need, and 8 kB
        # of each committed file on any storage: a GB after 120,000 files. Footers stay cached, see connect.
        connection.execute("SET enable_external_file_cache = false")
    return connection


def mark(*folders: str) -> None:
    """Write the marker file into each folder that lacks it, so that readers of sources skip these folders."""
    for folder in folders:
        if os.path.isdir(folder) and not os.path.exists(path := os.path.join(folder, MARK)):
            Path(path).write_text(f"{LAKE_TEXT}\n", encoding="utf-8")


def _check_snapshot(metadata: Metadata, location: Location, at: int) -> None:
    """Raise PairmillError if the lake has no snapshot ``at``: it is to come, or has expired."""
    found = {number for (number,) in metadata.read("SELECT snapshot_id FROM ducklake_snapshot")}
    if at not in found:
        raise PairmillError(
            f"lake '{location.uri}' has no snapshot {at}; it has {len(found):,} from {min(found)} to {max(found)}. "
            "Old ones expire; dataset versions stay."
        )


def _attach(connection: duckdb.DuckDBPyConnection, location: Location, read_only: bool, at: int | None = None) -> None:
    """Attach the lake; retry while another process opens or closes it. Raise NewerLake or PairmillError.

    SQLite locks readers out while the last user of a catalog merges its write-ahead log into the file.
    """
    try:
        retry_while_busy(
            lambda: attach(connection, location, read_only, at), location.uri, is_inside=False, doublings=6
        )
    except duckdb.InvalidInputException as error:
        raise _format_version_error(error, location.uri) or error from error


def bring_up_to_date(lake: Lake) -> None:
    """Migrate an older schema, under the lease; a reader waits for a lake that is being created, and migrates nothing.

    Raises NewerLake for a newer format or schema, LeaseHeld, and PairmillError for an older format or no tables.
    """
    found = _version_for_reader(lake) if lake.read_only else schema.version(lake)
    if found > (schema.FORMAT, schema.NEWEST):
        raise NewerLake(
            f"lake '{lake.uri}' was made by a newer Pairmill (format {found.format}, schema {found.migrations}; this "
            f"one knows {schema.FORMAT} and {schema.NEWEST}). Install that version or a later one; the lake was not "
            "touched."
        )
    if found.migrations and found.format < schema.FORMAT:
        raise PairmillError(
            f"lake '{lake.uri}' has format {found.format}, and this Pairmill reads format {schema.FORMAT}. Make the "
            "lake anew: `pairmill run` over its sources, into another folder; this one was not touched."
        )
    if found.migrations:
        _check_data_path(lake)
    if found.migrations < schema.NEWEST and not lake.read_only:
        with hold(lake.metadata, lake.uri, "-", f"{MIGRATE} to schema {schema.NEWEST}", WAIT_SECONDS):
            schema.migrate(lake)
            comments.describe(lake)
    if lake.read_only:
        score_tables.create_empty_tables(lake)
    elif score_tables.changes(lake):
        with hold(lake.metadata, lake.uri, "-", "add the tables of scores", WAIT_SECONDS):
            score_tables.add(lake)
            comments.describe(lake)


def _version_for_reader(lake: Lake) -> schema.SchemaVersion:
    """Read the schema version, wait up to WAIT_SECONDS for a migration. PairmillError for a lake without tables."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := schema.version(lake)).migrations < schema.NEWEST and time.monotonic() < deadline:
        holder = holder_of(lake.metadata)
        if holder is None or holder.is_dead() or not holder.purpose.startswith(MIGRATE):
            found = schema.version(lake)  # the migration may have ended in between
            break
        time.sleep(0.05)
    if found.migrations == 0:
        raise PairmillError(
            f"lake '{lake.uri}' has no tables yet: the run that creates it was stopped. `pairmill run` finishes it."
        )
    return found


def _check_data_path(lake: Lake) -> None:
    """Update the stored data path of a moved lake. Raise PairmillError if the newest data is not there."""
    where = "key = 'data_path' AND scope IS NULL"
    stored = lake.metadata.read(f"SELECT value FROM ducklake_metadata WHERE {where}")
    if not stored or stored[0][0] == lake.data_path:
        return
    newest = snapshot.newest_file(lake.unchecked)
    if newest and not lake.query("SELECT 1 FROM glob(?)", (f"{lake.data_path}{newest[:-1]}*",)):
        raise PairmillError(
            f"lake '{lake.uri}': its data is not at {lake.data_path}; when last written it was at {stored[0][0]}. "
            "Move the data along with the catalog, or correct `data_path` in lake.yaml."
        )
    if not lake.read_only:
        lake.metadata.write(f"UPDATE ducklake_metadata SET value = ? WHERE {where}", (lake.data_path,))


def _reach_s3(connection: duckdb.DuckDBPyConnection, location: Location, read_only: bool) -> None:
    """Check within seconds that S3 responds: look for the lake's marker, else write it."""
    mark = quoted(location.data_path + MARK)
    connection.execute("SET http_retries = 1; SET http_timeout = 10")
    # glob() contacts S3 only for a name with a wildcard.
    found = connection.execute(f"SELECT 1 FROM glob({quoted(location.data_path + MARK[:-1] + '*')})").fetchall()
    if not found and not read_only:
        connection.execute(f"COPY (SELECT '{LAKE_TEXT}') TO {mark} (FORMAT csv, HEADER false)")
    connection.execute("RESET http_retries; RESET http_timeout")


def _format_version_error(error: Exception, uri: str) -> NewerLake | PairmillError | None:
    """Return the error for a lake whose DuckLake format this DuckDB does not support; None for other errors."""
    found = re.search(r"catalog version is ([\d.]+).*requires version ([\d.]+)", str(error))
    if not found:
        return None
    lake, known = (tuple(int(part) for part in text.strip(".").split(".")) for text in found.groups())
    if lake > known:
        return NewerLake(f"lake '{uri}' has DuckLake format {found[1]}, newer than this DuckDB reads. Update DuckDB.")
    return PairmillError(f"lake '{uri}' has the old DuckLake format {found[1]}. Migrate it with DuckDB first: {error}")


def open_as_allowed(uri: str | os.PathLike[str]) -> Lake:
    """Open an existing lake for writing, or for reading where this user may not write. Raises as `create_or_open`."""
    check_is_lake(os.fspath(uri))
    try:
        return create_or_open(uri)
    except NotWritable:
        return create_or_open(uri, read_only=True)


def create_or_open(uri: str | os.PathLike[str], read_only: bool = False, at: int | None = None) -> Lake:
    """Open the lake at a folder or lake.yaml. A writer creates a missing lake and migrates an older one.

    A reader is never blocked by a writer, and changes nothing but what a power cut left half written. It sees the
    tables as of snapshot ``at``, None being the newest at each statement. Raises PairmillError with the remedy, of
    which NewerLake and LeaseHeld (another process writes, and a migration is needed) are kinds.
    """
    location = locate(uri)
    with _translate_errors(location):
        lake = Lake(location, *_connect_and_attach(location, read_only, at), read_only)
        try:
            bring_up_to_date(lake)
        except BaseException:
            lake.close()
            raise
        return lake
