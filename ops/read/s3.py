"""A source in S3 or what speaks its language, through s3fs; the AWS_* variables apply, AWS_ENDPOINT_URL included."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from errno import EINVAL
from functools import cache
from typing import IO, Any

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError

from ops.fault import Fault
from ops.read.tree import MAX_BYTES, Entry, SourceError, refused

# A place that cannot be reached is given up after some 20 s, one that falls silent after 2 minutes.
CONNECT_SECONDS, READ_SECONDS, ATTEMPTS = 5, 30, 4
UNREACHABLE = (BotoCoreError, ClientError, OSError, asyncio.TimeoutError)


@cache
def _filesystem() -> Any:
    """One a process; never pickled."""
    import s3fs  # takes 0.4 s, which a local source need not pay

    filesystem = s3fs.S3FileSystem(
        config_kwargs={
            "connect_timeout": CONNECT_SECONDS,
            "read_timeout": READ_SECONDS,
            "retries": {"total_max_attempts": ATTEMPTS, "mode": "standard"},
        },
        use_listings_cache=False,
    )
    filesystem.retries = 1  # s3fs would repeat five times on top of botocore
    return filesystem


@dataclass(frozen=True)
class S3Tree:
    """Keys under ``root`` ('s3://bucket/prefix'), or the one key ``only``. Keys are names, so no '..' climbs out."""

    root: str
    only: str = ""

    def list(self) -> tuple[list[Entry], list[Fault]]:
        """As Tree.list. SourceError when the place cannot be reached or listed."""
        start = self.root.removeprefix("s3://")
        try:
            found = _filesystem().find(start + (f"/{self.only}" if self.only else ""), detail=True)
        except FileNotFoundError:
            raise SourceError(
                f"source '{self.root}': no such bucket or prefix; check its name and the region"
            ) from None
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
        return self._entries(start, found)

    def _entries(self, start: str, found: dict[str, dict[str, Any]]) -> tuple[list[Entry], list[Fault]]:
        entries = []
        for key, info in found.items():
            path = key.removeprefix(start).lstrip("/")
            hidden = any(name.startswith(".") for name in path.split("/"))
            if path and info["type"] == "file" and not hidden and not path.endswith("/"):
                entries.append(Entry(path, int(info["size"]), str(info["ETag"]).strip('"')))
        return sorted(entries, key=lambda entry: entry.path), []

    def uri(self, path: str) -> str:
        return f"{self.root}/{path}"

    def exists(self, path: str) -> bool:
        return bool(_filesystem().isfile(self.uri(path)))

    def read(self, path: str) -> bytes | Fault:
        return self.read_many([path])[0]

    def read_many(self, paths: list[str]) -> list[bytes | Fault]:
        # A range one byte too long tells a too large object without reading it.
        uris = [self.uri(path) for path in paths]
        found = _filesystem().cat_ranges(uris, [0] * len(uris), [MAX_BYTES + 1] * len(uris), on_error="return")
        return [_content(uri, content) for uri, content in zip(uris, found, strict=True)]

    def open(self, path: str) -> IO[bytes]:
        # Tables are read here and there: s3fs would read 50 MB ahead each time.
        return _filesystem().open(self.uri(path), "rb", block_size=2**20)


def _content(uri: str, content: bytes | Exception) -> bytes | Fault:
    if isinstance(content, FileNotFoundError):
        return Fault(uri, "missing", "no such object")
    if isinstance(content, PermissionError):
        return Fault(uri, "missing", f"cannot be read: {content}")
    if isinstance(content, OSError) and content.errno == EINVAL and _filesystem().size(uri) == 0:
        return Fault(uri, "empty", "no bytes")  # of an empty object S3 has no range to give
    if isinstance(content, Exception):
        raise SourceError(
            f"'{uri}' cannot be read from S3: {content}; run again, what is finished is kept"
        ) from content
    return refused(uri, len(content)) or content


def s3_tree(uri: str, file_suffixes: frozenset[str]) -> S3Tree:
    """Tree of a prefix, or of one key when its name ends in a known suffix. Nothing is asked of S3 before a listing."""
    root, _, name = uri.rpartition("/")
    is_key = name.rpartition(".")[2].lower() in file_suffixes and root.count("/") >= 2
    return S3Tree(root, only=name) if is_key else S3Tree(uri.rstrip("/"))
