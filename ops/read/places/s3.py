"""Read a source in S3 or a compatible store through s3fs, by the usual AWS_* variables and AWS_ENDPOINT_URL.

Transient failures are retried and counted; a failure is never taken for the end of a file. botocore retries refused
requests. s3fs's own retries are disabled: they count nothing, and multiply botocore's by five.
"""

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from errno import EINVAL
from functools import cache, partial
from typing import IO, Any, TypeVar

import aiohttp
import s3fs
from botocore import exceptions

from pairmill.ops.fault import Fault
from pairmill.ops.read.places import own_folders, retries
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.ranges import buffered
from pairmill.ops.read.places.tree import MAX_BYTES, Place, SourceError, Tree, refused

# Objects requested in parallel, and bytes read of each in the first request. A worker holds at most 128 MB of these;
# nearly all images are smaller than 4 MB.
AT_ONCE, BEGINNING = 32, 4 * 2**20
NOWHERE = "no such bucket or prefix; check its name and the region"
# A place that cannot be reached is given up after some 30 s; a place that stops responding, after 3 minutes.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 30, 5
# botocore retries requests that are refused or not answered, but not a response that breaks off.
BROKEN_OFF = (aiohttp.ClientPayloadError, exceptions.ResponseStreamingError, exceptions.IncompleteReadError,
              ConnectionError)  # fmt: skip
WAITS = (0.2, 0.4, 0.8, 1.6)
UNREACHABLE = (exceptions.BotoCoreError, exceptions.ClientError, OSError, asyncio.TimeoutError, aiohttp.ClientError)
Asked = TypeVar("Asked")


@dataclass(frozen=True)
class S3Tree(Tree):
    """Tree of the S3 keys below ``root`` ('s3://bucket/prefix'), or the key ``only``; '..' in a key is a plain name."""

    root: str
    only: str = ""

    @property
    def place(self) -> str:
        """The URI of the tree's prefix or single key."""
        return self.uri(self.only) if self.only else self.root

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """List the keys as Tree.list_into does, a page of 1,000 keys at a time."""
        clues: defaultdict[str, set[str]] = defaultdict(set)
        hidden: dict[str, None] = {}
        for page in self._pages():
            entries = [entry for entry in (self._entry(each) for each in page) if entry]
            for entry in entries:
                folder, slash, name = entry.path.rpartition("/")
                for place, clue in ((folder + slash, own_folders.clue(name)), own_folders.data_clue(entry.path)):
                    if clue and entry.size:  # S3 refuses a range read of an empty object
                        clues[place].add(clue)
            hidden |= dict.fromkeys(filter(None, (own_folders.left_out(entry.path) for entry in entries)))
            files.add(entry for entry in entries if not own_folders.left_out(entry.path))
        ours = {folder for folder, seen in clues.items() if own_folders.is_own(seen, lambda: False)}
        own = set() if self.only else ours
        if "" in own:
            raise SourceError(f"source '{self.root}' {own_folders.ITSELF}")
        for folder in own:
            files.drop(folder)
        for place in sorted({own_folders.left_out(place + "/", own) or place for place in (*hidden, *own)}):
            why = own_folders.LEFT_OUT if f"{place}/" in own else own_folders.HIDDEN
            yield Fault(self.uri(place), "left_out", why)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield pages of listed objects, sorted by key. Raises SourceError as `list_into` does."""
        bucket, _, prefix = self.root.removeprefix("s3://").partition("/")
        if self.only:
            prefix = f"{prefix}/{self.only}" if prefix else self.only
        elif prefix:
            prefix += "/"
        asked: dict[str, Any] = {"Bucket": bucket, "Prefix": prefix}
        n = 0
        while True:
            answer = self._asked(asked)
            found = [each for each in answer.get("Contents", ()) if not self.only or each["Key"] == prefix]
            n += len(found)
            yield found
            if self.only or not answer.get("IsTruncated"):  # the key sorts before longer keys with this prefix
                break
            asked["ContinuationToken"] = answer["NextContinuationToken"]
        if self.only and not n:
            raise SourceError(f"source '{self.root}': {NOWHERE}")

    def _asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Request one page of the listing; raise SourceError if S3 refuses or does not respond."""
        try:
            return again(lambda: filesystem().call_s3("list_objects_v2", **asked))
        except FileNotFoundError:
            why = NOWHERE
        except exceptions.NoCredentialsError:
            why = "no S3 credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
        except UNREACHABLE as error:
            why = f"S3 cannot be reached or refuses ({error}); check AWS_ENDPOINT_URL, the network and the credentials"
        raise SourceError(f"source '{self.root}': {why}")

    def _entry(self, found: dict[str, Any]) -> Entry | None:
        """Build an Entry from a listed object; return None for a folder marker."""
        start = self.root.removeprefix("s3://").partition("/")[2]
        path = str(found["Key"]).removeprefix(start).removeprefix("/")  # one slash only: a key may hold two in a row
        if not path or path.endswith("/"):
            return None
        return Entry(path, int(found["Size"]), str(found["ETag"]).strip('"'))

    def exists(self, path: str) -> bool:
        """Return whether the object exists and may be read."""
        # isfile of s3fs returns False after any failure.
        try:
            return translate_errors(self.uri(path), lambda: filesystem().info(self.uri(path)))["type"] == "file"
        except (FileNotFoundError, PermissionError):
            return False

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read one object of at most ``most`` bytes, or return a Fault. Raises SourceError if S3 fails."""
        # Reading a range one byte longer than allowed detects a too large object without reading all of it.
        uri, end = self.uri(path), min(most, MAX_BYTES) + 1
        (found,) = _read_all([(uri, 0, end)])
        if isinstance(content := _content(uri, found), Fault):
            return content
        size = len(content) if len(content) < end else translate_errors(uri, lambda: filesystem().size(uri))
        return refused(uri, size, most) or content

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Read objects as Tree.read_many does: the first 4 MB of 32 in parallel, then the few larger ones in turn."""
        found: list[bytes | Fault] = []
        for at in range(0, len(paths), AT_ONCE):
            some = paths[at : at + AT_ONCE]
            begun = _read_all([(self.uri(path), 0, BEGINNING + 1) for path in some])
            for path, data in zip(some, begun, strict=True):
                uri = self.uri(path)
                content = _content(uri, data)
                if not isinstance(content, Fault):
                    is_whole = len(content) <= BEGINNING
                    content = refused(uri, len(content), most) or content if is_whole else self.read(path, most)
                most -= 0 if isinstance(content, Fault) else len(content)
                found.append(content)
        return found

    def open(self, path: str) -> IO[bytes]:
        """Open an object as Tree.open does. Raises FileNotFoundError or PermissionError for the object.

        A failure of S3, now or in a later read, is a SourceError: it must not look like the end of a table.
        """
        uri = self.uri(path)
        return buffered(translate_errors(uri, lambda: filesystem().size(uri)), partial(range_of, uri))

    def where(self, path: str) -> Place | None:
        """Return the object's URI as the place where its bytes can be read again."""
        return Place(self.uri(path))


def _content(uri: str, content: bytes | Exception) -> bytes | Fault:
    """Convert the result of reading an object from its start to bytes or a Fault. Raises SourceError if S3 fails."""
    if isinstance(content, FileNotFoundError):
        return Fault(uri, "missing", "no such object")
    if isinstance(content, PermissionError):
        return Fault(uri, "missing", f"cannot be read: {content}")
    if isinstance(content, OSError) and content.errno == EINVAL and filesystem().size(uri) == 0:
        return Fault(uri, "empty", "no bytes")  # S3 refuses a range read of an empty object
    if isinstance(content, Exception):
        raise SourceError(failure_message(uri, content)) from content
    return content if content else Fault(uri, "empty", "no bytes")


def _read_all(wanted: list[tuple[str, int, int]]) -> list[bytes | Exception]:
    """Read bytes [start, end) of each (uri, start, end) in parallel; an exception stands for unreadable bytes."""
    uris, starts, ends = (list(each) for each in zip(*wanted, strict=True))
    found = filesystem().cat_ranges(uris, starts, ends, on_error="return")
    for number, (uri, start, end) in enumerate(wanted):
        if isinstance(found[number], BROKEN_OFF):
            retries.add()
            try:
                found[number] = again(lambda: filesystem().cat_file(uri, start=start, end=end))  # noqa: B023
            except UNREACHABLE as error:
                found[number] = error
    return found


def ranges(wanted: list[tuple[str, int, int]]) -> list[bytes | Exception]:
    """Read (uri, start, end) ranges in parallel; an exception stands for an object that is gone, forbidden or shorter.

    Raises SourceError if S3 does not respond, or the bucket of a missing object cannot be listed either.
    """
    found = _read_all(wanted)
    for (uri, _, _), content in zip(wanted, found, strict=True):
        shorter = isinstance(content, OSError) and content.errno == EINVAL
        if isinstance(content, (FileNotFoundError, PermissionError)):
            # If the bucket can be listed, the object is lost, not the bucket or the credentials.
            bucket, _, key = uri.removeprefix("s3://").partition("/")
            try:
                filesystem().call_s3("list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1)
            except UNREACHABLE as error:
                raise SourceError(failure_message(uri, error)) from error
        elif isinstance(content, Exception) and not shorter:
            raise SourceError(failure_message(uri, content)) from content
    return found


def s3_tree(uri: str, file_suffixes: frozenset[str]) -> S3Tree:
    """Return the tree of a prefix, or of one key if its name ends in a known suffix; send no request."""
    root, _, name = uri.rpartition("/")
    is_key = name.rpartition(".")[2].lower() in file_suffixes and root.count("/") >= 2
    return S3Tree(root, only=name) if is_key else S3Tree(uri.rstrip("/"))


@cache
def filesystem() -> Any:
    """Return the process's one S3 file system, created on first use; it is never pickled."""
    usual = {"AWS_MAX_ATTEMPTS": ("total_max_attempts", ATTEMPTS), "AWS_RETRY_MODE": ("mode", "standard")}
    found = s3fs.S3FileSystem(
        config_kwargs={
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": dict(setting for name, setting in usual.items() if name not in os.environ),
        },
        use_listings_cache=False,
    )
    found.retries = 1  # s3fs would retry five times on top of botocore
    client: Any = found.s3
    for event in ("after-call.s3", "after-call-error.s3"):
        client.meta.events.register(event, _count)
    return found


def _count(parsed: dict[str, Any] | None = None, exception: Any = None, **_: object) -> None:
    """Count the retries of a finished request; botocore calls this after success and failure."""
    said = parsed if parsed is not None else getattr(exception, "response", None) or {}
    retries.add(said.get("ResponseMetadata", {}).get("RetryAttempts", 0))


def range_of(uri: str, start: int, end: int) -> bytes:
    """Return the bytes [start, end) of an object. Raises SourceError if S3 fails or the object became shorter."""
    found = translate_errors(uri, lambda: again(lambda: filesystem().cat_file(uri, start=start, end=end)))
    if len(found) < end - start:
        raise SourceError(f"'{uri}' became shorter while it was read; run again")
    return found


def again(ask: Callable[[], Asked]) -> Asked:
    """Return the result of ``ask``; retry it up to ``len(WAITS)`` times if the response breaks off.

    Raises the last attempt's error.
    """
    for wait in WAITS:
        try:
            return ask()
        except BROKEN_OFF:
            retries.add()
            time.sleep(wait)
    return ask()


def translate_errors(uri: str, ask: Callable[[], Asked]) -> Asked:
    """Return the result of ``ask``; raise S3's failures as SourceError, but not FileNotFoundError, PermissionError."""
    try:
        return ask()
    except (FileNotFoundError, PermissionError):
        raise
    except UNREACHABLE as error:
        raise SourceError(failure_message(uri, error)) from error


def failure_message(uri: str, error: Exception) -> str:
    """Return the message for a failed read from S3, with the remedy."""
    return f"'{uri}' cannot be read from S3: {error}; run again, what is finished is kept"
