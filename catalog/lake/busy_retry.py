"""Retry an operation while the catalog is busy, for at most a minute, and translate DuckDB's errors.

A translated message says what is wrong, where, and the remedy. tenacity would need as many lines for transactions and
translated errors, and takes 45 us per call instead of 0.2.
"""

import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

import duckdb

from pairmill.catalog.terms.error import BadQuery, Damaged, NotWritable, PairmillError, stop_behind

SECONDS = 60.0
Result = TypeVar("Result")


def retry_while_busy(body: Callable[[], Result], uri: str, *, is_inside: bool, doublings: int) -> Result:
    """Run ``body`` and retry while it meets a lock or a conflicting commit; ``uri`` names the lake in messages.

    Waits 0.01 to 0.05 s, doubled at each retry up to ``doublings`` times. With ``is_inside`` (a transaction) nothing is
    retried: only the whole transaction can be, by the caller that began it.

    Raises PairmillError if the catalog stays busy for SECONDS, the error of `translate_error` for a permanent fault,
    and whatever a signal handler raised meanwhile.
    """
    deadline = time.monotonic() + SECONDS
    attempt = 0
    while True:
        attempt += 1
        try:
            return body()
        except RuntimeError as error:  # as DuckDB says what it meets while it registers a table: a full disk, too
            if (behind := stop_behind(error)) is not error:
                raise behind from None
            raise translate_error(error, uri) from error
        except (duckdb.Error, OSError) as error:
            # A lock or a conflict may be gone at a retry; wrong SQL stays wrong.
            if isinstance(error, _MISTAKES) or not any(sign in str(error).lower() for sign in TRANSIENT):
                raise translate_error(error, uri) from error
            if is_inside:
                raise
            if time.monotonic() > deadline:
                raise PairmillError(
                    f"lake '{uri}': its catalog was busy for {SECONDS:.0f} s. Wait for who writes (`pairmill status`) "
                    f"or reads (a `pairmill sql` in a pager), or end it, and run again; nothing was lost. ({error})"
                ) from error
        time.sleep(random.uniform(0.01, 0.05) * 2 ** min(attempt, doublings))


TRANSIENT = ("is locked", "conflict", "could not serialize", "deadlock detected", "unique constraint",
             "duplicate key")  # fmt: skip
_MARK = re.compile(r"\n *\^ *$")
_MISTAKES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException, duckdb.ConversionException,
             duckdb.OutOfRangeException)  # fmt: skip
_REMEDIES = (
    (("no space left", "disk is full", "disk full", "quota exceeded", "disk i/o error"),
     "its disk is full, or fails. Free some space and run again: what was committed is kept, the rest is done again."),
    (("connect to postgres", "connection refused", "could not translate host", "connection to server",
      "terminating connection", "server closed the connection"),
     "its Postgres cannot be reached. Check `metadata` in lake.yaml, that the server runs, and PGPASSWORD."),
    (("http", "could not establish connection", "could not connect", "curl", "s3://"),
     "its S3 storage cannot be reached or refuses. Check `data_path`, AWS_ENDPOINT_URL, AWS_REGION and the AWS keys."),
)  # fmt: skip
_NOT_WRITABLE = ("permission denied", "readonly database", "read-only file system", "unable to open database file",
                 "must be owner of", "read-only transaction")  # fmt: skip
_DAMAGE = (
    (("disk image is malformed", "malformed database", "not a database"),
     "its catalog file is damaged. Restore catalog.sqlite from a copy; the files under data/ are whole."),
    # DuckDB's messages about Parquet files that are truncated, changed or missing. It verifies no page checksums.
    (("zstd", "decompress", "out of buffer", "invalid string encoding", "tprotocolexception", "no magic bytes",
      "checksum", "too small to be a parquet file", "likely corrupted", "don't know what type", "corrupt database file",
      "no files found that match", "no such file", "cannot open file", "footer"),
     "a file of it is gone or damaged. Put it back from a copy of the lake, and run this again."),
)  # fmt: skip


def one_line(error: Exception) -> str:
    """Return an error's message on one line, without the caret that DuckDB puts below its excerpt of a statement."""
    return " ".join(_MARK.sub("", str(error)).split())


def translate_error(error: Exception, uri: str) -> Exception:
    """Convert an error of SQL, disk, network or permissions to a PairmillError that names the remedy.

    An error of another kind is returned unchanged.
    """
    if isinstance(error, _MISTAKES):
        return BadQuery(one_line(error))
    text = str(error)
    for signs, remedy in _DAMAGE:
        if any(sign in text.lower() for sign in signs):
            return Damaged(f"lake '{uri}': {remedy} ({one_line(error)[:300]})")
    if isinstance(error, duckdb.InvalidInputException):
        return error
    if isinstance(error, duckdb.OutOfMemoryException):  # also raised if the spill disk is full
        return PairmillError(
            f"lake '{uri}': memory, or the disk beside it, does not suffice. Free some, or run on a larger machine: "
            f"what was committed is kept, the rest is done again. ({one_line(error)[:300]})"
        )
    if any(sign in text.lower() for sign in _NOT_WRITABLE):
        remedy = "it cannot be opened or written here. Check its owner and rights (or open it for reading only)."
        return NotWritable(f"lake '{uri}': {remedy} ({one_line(error)[:300]})")
    for signs, remedy in _REMEDIES:
        if any(sign in text.lower() for sign in signs):
            return PairmillError(f"lake '{uri}': {remedy} ({one_line(error)[:300]})")
    return error
