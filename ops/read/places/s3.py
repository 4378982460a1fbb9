"""Read a source in S3 or a compatible store, through s3fs; AWS_* variables apply, AWS_ENDPOINT_URL included."""

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
from pairmill.ops.read.places.tree import MAX_BYTES, Place, SourceError, refused

# Objects asked for at once, and so much of each: 128 MB that a worker may hold, and pictures are smaller.
AT_ONCE, BEGINNING = 32, 4 * 2**20


@dataclass(frozen=True)
class S3Tree:
    """Read keys under ``root`` ('s3://bucket/prefix'), or the key ``only``. Keys are names: no '..' climbs out."""

    root: str
    only: str = ""

    @property
    def place(self) -> str:
        """The prefix or key."""
        return self.uri(self.only) if self.only else self.root

    def list_into(self, files: FileTable) -> Iterator[Fault]:
        """List as Tree.list_into, a page of 1,000 keys at a time.

        Raises SourceError when the place cannot be reached or listed.
        """
        clues: defaultdict[str, set[str]] = defaultdict(set)
        hidden: dict[str, None] = {}
        for page in self._pages():
            entries = [entry for entry in (self._entry(each) for each in page) if entry]
            for entry in entries:
                folder, slash, name = entry.path.rpartition("/")
                for place, clue in ((folder + slash, own_folders.clue(name)), own_folders.data_clue(entry.path)):
                    if clue and entry.size:  # of an empty object S3 has no first bytes to give
                        clues[place].add(clue)
            hidden |= dict.fromkeys(filter(None, (own_folders.left_out(entry.path) for entry in entries)))
            files.add(entry for entry in entries if not own_folders.left_out(entry.path))
        own = set() if self.only else {folder for folder, seen in clues.items() if self._is_own(folder, seen)}
        if "" in own:
            raise SourceError(f"source '{self.root}' {own_folders.ITSELF}")
        for folder in own:
            files.drop(folder)
        for place in sorted({own_folders.left_out(place + "/", own) or place for place in (*hidden, *own)}):
            ours = f"{place}/" in own
            yield Fault(self.uri(place), "left_out", own_folders.LEFT_OUT if ours else own_folders.HIDDEN)

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield the objects below the place, as S3 lists them: by key. Raises SourceError as `list_into` does."""
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
            if self.only or not answer.get(
                "IsTruncated"
            ):  # of the keys that begin as it does the shortest is the first
                break
            asked["ContinuationToken"] = answer["NextContinuationToken"]
        if self.only and not n:
            raise self._nowhere()

    def _asked(self, asked: dict[str, Any]) -> dict[str, Any]:
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
        return SourceError(f"source '{self.root}': no such bucket or prefix; check its name and the region")

    def _entry(self, found: dict[str, Any]) -> Entry | None:
        """Make an entry of a listed object; None for what stands for a folder."""
        start = self.root.removeprefix("s3://").partition("/")[2]
        path = str(found["Key"]).removeprefix(start).removeprefix("/")  # one: a key may hold two in a row
        if not path or path.endswith("/"):
            return None
        return Entry(path, int(found["Size"]), str(found["ETag"]).strip('"'))

    def _is_own(self, folder: str, clues: set[str]) -> bool:
        def head(name: str, n: int) -> bytes:
            try:
                return told(
                    self.uri(folder + name), lambda: filesystem().cat_file(self.uri(folder + name), start=0, end=n)
                )
            except (FileNotFoundError, PermissionError):
                return b""

        return own_folders.is_own(clues, lambda: False, head)

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        # s3fs's own isfile takes any failure for no.
        try:
            return told(self.uri(path), lambda: filesystem().info(self.uri(path)))["type"] == "file"
        except (FileNotFoundError, PermissionError):
            return False

    def read(self, path: str, most: int = MAX_BYTES) -> bytes | Fault:
        # A range one byte too long tells a too large object without reading it.
        uri, end = self.uri(path), min(most, MAX_BYTES) + 1
        (found,) = filesystem().cat_ranges([uri], [0], [end], on_error="return")
        content = _content(uri, found, end)
        if isinstance(content, Fault):
            return content
        size = len(content) if len(content) < end else told(uri, lambda: filesystem().size(uri))
        return refused(uri, size, most) or content

    def read_many(self, paths: list[str], most: int = MAX_BYTES) -> list[bytes | Fault]:
        """Read as Tree.read_many: the beginnings of some at once, which is all there is of most; others in turn."""
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
        """Open as Tree.open. Raises FileNotFoundError and PermissionError.

        Opening and reading raise SourceError for what S3 refuses in the end: a table must not seem to end there.
        """
        uri = self.uri(path)
        return buffered(told(uri, lambda: filesystem().size(uri)), lambda start, end: range_of(uri, start, end))

    def where(self, path: str) -> Place | None:
        return Place(self.uri(path))


def _content(uri: str, content: bytes | Exception, end: int) -> bytes | Fault:
    """Make what was asked for, bytes [0, ``end``), of what S3 answered."""
    if isinstance(content, BROKEN_OFF):
        retries.add()
        content = _asked_again(uri, 0, end)
    if isinstance(content, FileNotFoundError):
        return Fault(uri, "missing", "no such object")
    if isinstance(content, PermissionError):
        return Fault(uri, "missing", f"cannot be read: {content}")
    if isinstance(content, OSError) and content.errno == EINVAL and filesystem().size(uri) == 0:
        return Fault(uri, "empty", "no bytes")  # of an empty object S3 has no range to give
    if isinstance(content, Exception):
        raise SourceError(cannot(uri, content)) from content
    return content if content else Fault(uri, "empty", "no bytes")


def _asked_again(uri: str, start: int, end: int) -> bytes | Exception:
    """Ask again for what broke off; that answer may have been 'no such object'."""
    try:
        return again(lambda: filesystem().cat_file(uri, start=start, end=end))
    except UNREACHABLE as error:
        return error


def ranges(wanted: list[tuple[str, int, int]]) -> list[bytes | Exception]:
    """Read bytes [start, end) of each (uri, start, end), all at once.

    An exception stands in place of what is gone, shorter by now, or forbidden. Raises SourceError when S3 cannot be
    reached, or does not show the object's bucket either.
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

    That tells a lost object from a lost bucket and from expired credentials.
    """
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    try:
        filesystem().call_s3("list_objects_v2", Bucket=bucket, Prefix=key, MaxKeys=1)
    except UNREACHABLE as error:
        raise SourceError(cannot(uri, error)) from error


def s3_tree(uri: str, file_suffixes: frozenset[str]) -> S3Tree:
    """Make the tree of a prefix, or of one key when its name ends in a known suffix, without asking S3."""
    root, _, name = uri.rpartition("/")
    is_key = name.rpartition(".")[2].lower() in file_suffixes and root.count("/") >= 2
    return S3Tree(root, only=name) if is_key else S3Tree(uri.rstrip("/"))
