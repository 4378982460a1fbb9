"""Read a source in S3 or a compatible store through s3fs.

The usual AWS_* variables apply, AWS_ENDPOINT_URL included.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from errno import EINVAL
from typing import IO, Any

from botocore.exceptions import NoCredentialsError

from pairmill.ops.fault import Fault
from pairmill.ops.read.places import own_folders, retries
from pairmill.ops.read.places.file_table import Entry, FileTable
from pairmill.ops.read.places.ranges import buffered
from pairmill.ops.read.places.s3_requests import BROKEN_OFF, UNREACHABLE, again, cannot, filesystem, range_of, told
from pairmill.ops.read.places.tree import MAX_BYTES, Place, SourceError, Tree, refused

# Objects requested in parallel, and bytes read of each in the first request. A worker holds at most 128 MB of these;
# nearly all images are smaller than 4 MB.
AT_ONCE, BEGINNING = 32, 4 * 2**20


@dataclass(frozen=True)
class S3Tree(Tree):
    """Read the keys under ``root`` ('s3://bucket/prefix'), or the one key ``only``.

    Keys are plain names, so a '..' in a key cannot leave the prefix.
    """

    root: str
    only: str = ""

    @property
    def place(self) -> str:
        """The URI of the prefix or key."""
        return self.uri(self.only) if self.only else self.root

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """List the keys as Tree.list_into does, a page of 1,000 keys at a time.

        Raises:
            SourceError: The place cannot be reached or listed.
        """
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
            raise self._nowhere()

    def _asked(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Request one page of the listing; raise SourceError if S3 refuses or does not respond."""
        try:
            return again(lambda: filesystem().call_s3("list_objects_v2", **asked))
        except FileNotFoundError:
            raise self._nowhere() from None
        except NoCredentialsError:
            raise SourceError(
                f"source '{self.root}': no S3 credentials; "
                "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE"
            ) from None
        except UNREACHABLE as error:
            raise SourceError(
                f"source '{self.root}': S3 cannot be reached or refuses ({error}); "
                "check AWS_ENDPOINT_URL, the network and the credentials"
            ) from None

    def _nowhere(self) -> SourceError:
        """Build the SourceError for a bucket or prefix that does not exist."""
        return SourceError(f"source '{self.root}': no such bucket or prefix; check its name and the region")

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
            return told(self.uri(path), lambda: filesystem().info(self.uri(path)))["type"] == "file"
        except (FileNotFoundError, PermissionError):
            return False

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        """Read one object of at most ``most`` bytes, or return a Fault. Raises SourceError if S3 fails."""
        # Reading a range one byte longer than allowed detects a too large object without reading all of it.
        uri, end = self.uri(path), min(most, MAX_BYTES) + 1
        (found,) = filesystem().cat_ranges([uri], [0], [end], on_error="return")
        content = _content(uri, found, end)
        if isinstance(content, Fault):
            return content
        size = len(content) if len(content) < end else told(uri, lambda: filesystem().size(uri))
        return refused(uri, size, most) or content

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Read objects as Tree.read_many does.

        The first 4 MB of 32 objects are read in parallel; that is the whole of nearly all. Larger objects are read one
        by one.
        """
        found: list[bytes | Fault] = []
        for at in range(0, len(paths), AT_ONCE):
            some = paths[at : at + AT_ONCE]
            uris = [self.uri(path) for path in some]
            begun = filesystem().cat_ranges(uris, [0] * len(uris), [BEGINNING + 1] * len(uris), on_error="return")
            for path, uri, data in zip(some, uris, begun, strict=True):
                content = _content(uri, data, BEGINNING + 1)
                if not isinstance(content, Fault):
                    is_whole = len(content) <= BEGINNING
                    content = refused(uri, len(content), most) or content if is_whole else self.read(path, most)
                most -= 0 if isinstance(content, Fault) else len(content)
                found.append(content)
        return found

    def open(self, path: str) -> IO[bytes]:
        """Open an object as Tree.open does.

        Raises:
            FileNotFoundError: There is no such object.
            PermissionError: The object may not be read.
            SourceError: S3 fails, now or in a later read: a failure must not look like the end of a table.
        """
        uri = self.uri(path)
        return buffered(told(uri, lambda: filesystem().size(uri)), lambda start, end: range_of(uri, start, end))

    def where(self, path: str) -> Place | None:
        """Return the object's URI as the place where its bytes can be read again."""
        return Place(self.uri(path))


def _content(uri: str, content: bytes | Exception, end: int) -> bytes | Fault:
    """Convert the result of reading bytes [0, ``end``) to bytes or a Fault; retry a connection that broke off."""
    if isinstance(content, BROKEN_OFF):
        retries.add()
        content = _asked_again(uri, 0, end)
    if isinstance(content, FileNotFoundError):
        return Fault(uri, "missing", "no such object")
    if isinstance(content, PermissionError):
        return Fault(uri, "missing", f"cannot be read: {content}")
    if isinstance(content, OSError) and content.errno == EINVAL and filesystem().size(uri) == 0:
        return Fault(uri, "empty", "no bytes")  # S3 refuses a range read of an empty object
    if isinstance(content, Exception):
        raise SourceError(cannot(uri, content)) from content
    return content if content else Fault(uri, "empty", "no bytes")


def _asked_again(uri: str, start: int, end: int) -> bytes | Exception:
    """Retry a read that broke off; return the error if it fails, such as 'no such object'."""
    try:
        return again(lambda: filesystem().cat_file(uri, start=start, end=end))
    except UNREACHABLE as error:
        return error


def ranges(wanted: list[tuple[str, int, int]]) -> list[bytes | Exception]:
    """Read bytes [start, end) of each (uri, start, end) in parallel.

    An exception takes the place of an object that is gone, is forbidden, or has become shorter.

    Raises:
        SourceError: S3 does not respond, or the bucket of a missing object cannot be listed either.
    """
    uris, starts, ends = (list(each) for each in zip(*wanted, strict=True))
    found = filesystem().cat_ranges(uris, starts, ends, on_error="return")
    for number, content in enumerate(found):
        if isinstance(content, BROKEN_OFF):
            retries.add()
            content = found[number] = _asked_again(*wanted[number])
        shorter = isinstance(content, OSError) and content.errno == EINVAL
        if isinstance(content, (FileNotFoundError, PermissionError)):
            _bucket_is_there(uris[number])
        elif isinstance(content, Exception) and not shorter:
            raise SourceError(cannot(uris[number], content)) from content
    return found


def _bucket_is_there(uri: str) -> None:
    """Raise SourceError unless the bucket can be listed.

    This distinguishes a lost object from a lost bucket and from expired credentials.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        filesystem().call_s3("list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1)
    except UNREACHABLE as error:
        raise SourceError(cannot(uri, error)) from error


def s3_tree(uri: str, file_suffixes: frozenset[str]) -> S3Tree:
    """Build the tree of a prefix, or of one key if its name ends in a known suffix; send no request."""
    root, _, name = uri.rpartition("/")
    is_key = name.rpartition(".")[2].lower() in file_suffixes and root.count("/") >= 2
    return S3Tree(root, only=name) if is_key else S3Tree(uri.rstrip("/"))
