"""Record every change that a command makes below a folder, by strace: writes, syncs, names.

A write through a memory map is no system call, so it is missing; `Recording.mapped` names the files that were mapped
for writing. Of a lake this is only `catalog.sqlite-shm`, an index that SQLite rebuilds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

CALLS = ("openat,creat,write,pwrite64,writev,pwritev,ftruncate,truncate,fallocate,fsync,fdatasync,rename,renameat,"
         "renameat2,link,linkat,symlink,symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,lseek,copy_file_range,sendfile,"
         "mmap")  # fmt: skip
# Calls that change files in a way that is not replayed: a recording that has one of them is refused.
UNKNOWN = {"creat", "writev", "pwritev", "truncate", "fallocate", "symlink", "symlinkat", "copy_file_range", "sendfile"}
_LINE = re.compile(rb"(\d+)\s+(\w+)\((.*)\)\s+= (-?\d+|0x[0-9a-f]+)")
_RESUMED = re.compile(rb"(\d+)\s+<\.\.\. \w+ resumed>(.*)", re.DOTALL)
_HEX = re.compile(rb'"((?:\\x[0-9a-f]{2})*)"')
_FD = re.compile(rb"(-?\d+|AT_FDCWD)<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?")


@dataclass(frozen=True)
class Change:
    """One change on disk. ``names`` are pairs (path, inode, or None for a name that goes away)."""

    kind: str  # "write", "cut" (to a size), "sync", "names"
    inode: int = -1
    offset: int = 0
    data: bytes = b""
    names: tuple[tuple[str, int | None], ...] = ()


@dataclass
class Recording:
    """The changes below ``root`` in order. ``folders`` are the inodes that are folders; ``root`` is inode 0."""

    root: str
    changes: list[Change] = field(default_factory=list)
    folders: set[int] = field(default_factory=lambda: {0})
    mapped: set[str] = field(default_factory=set)
    _inodes: dict[str, int] = field(default_factory=dict)
    _places: dict[tuple[str, bytes], int] = field(default_factory=dict)
    _made: int = 0

    def take(self, call: str, arguments: bytes, result: int) -> None:
        """Add the changes of one successful system call."""
        if call in UNKNOWN and self._paths(arguments):
            raise AssertionError(f"{call} is not replayed: {arguments[:200]!r}")
        taken = getattr(self, f"_{call}", None)
        if taken:
            taken(arguments, result)

    def _openat(self, arguments: bytes, result: int) -> None:
        (path,) = self._paths(arguments) or ("",)
        flags = arguments.rpartition(b'"')[2]
        if not path or b"O_DIRECTORY" in flags or (b"O_CREAT" not in flags and path not in self._inodes):
            return
        if path not in self._inodes:
            self._name(path, self._new())
        elif b"O_TRUNC" in flags:
            self.changes.append(Change("cut", self._inodes[path], 0))
        size = self._size(path) if b"O_APPEND" in flags else 0
        self._places[(path, b"%d" % result)] = size

    def _lseek(self, arguments: bytes, result: int) -> None:
        if opened := self._opened(arguments):
            self._places[opened] = result

    def _write(self, arguments: bytes, result: int) -> None:
        if opened := self._opened(arguments):
            place = self._places.get(opened, 0)
            self._put(opened[0], place, arguments, result)
            self._places[opened] = place + result

    def _pwrite64(self, arguments: bytes, result: int) -> None:
        if opened := self._opened(arguments):
            self._put(opened[0], int(arguments.rpartition(b",")[2]), arguments, result)

    def _ftruncate(self, arguments: bytes, _: int) -> None:
        if opened := self._opened(arguments):
            self.changes.append(Change("cut", self._inodes[opened[0]], int(arguments.rpartition(b",")[2])))

    def _fsync(self, arguments: bytes, _: int) -> None:
        found = _FD.match(arguments)
        path = _plain(found[2]) if found else ""
        if path == self.root or path in self._inodes:
            self.changes.append(Change("sync", 0 if path == self.root else self._inodes[path]))

    _fdatasync = _fsync

    def _mmap(self, arguments: bytes, _: int) -> None:
        found = _FD.search(arguments)
        if found and b"PROT_WRITE" in arguments and b"MAP_SHARED" in arguments and self._is_below(_plain(found[2])):
            self.mapped.add(_plain(found[2]))

    def _rename(self, arguments: bytes, _: int) -> None:
        paths = self._paths(arguments)
        if len(paths) != 2:
            assert not paths, f"renamed across the border: {paths}"
            return
        old, new = paths
        inode = self._inodes.pop(old)
        moved = [path for path in self._inodes if path.startswith(f"{old}/")]
        assert not moved, f"a folder with files is renamed: {old}"
        self._inodes[new] = inode
        self.changes.append(Change("names", names=((old, None), (new, inode))))

    _renameat = _renameat2 = _rename

    def _link(self, arguments: bytes, _: int) -> None:
        if len(paths := self._paths(arguments)) == 2:
            self._name(paths[1], self._inodes[paths[0]])

    _linkat = _link

    def _unlink(self, arguments: bytes, _: int) -> None:
        for path in self._paths(arguments):
            self._inodes.pop(path)
            self.changes.append(Change("names", names=((path, None),)))

    _unlinkat = _rmdir = _unlink

    def _mkdir(self, arguments: bytes, _: int) -> None:
        for path in self._paths(arguments):
            inode = self._new()
            self.folders.add(inode)
            self._name(path, inode)

    _mkdirat = _mkdir

    def _put(self, path: str, offset: int, arguments: bytes, n: int) -> None:
        data = _bytes(_HEX.search(arguments)[1])[:n]  # type: ignore[index]
        assert len(data) == n, f"{path}: strace cut a write short"
        self.changes.append(Change("write", self._inodes[path], offset, data))

    def _name(self, path: str, inode: int) -> None:
        self._inodes[path] = inode
        self.changes.append(Change("names", names=((path, inode),)))

    def _new(self) -> int:
        self._made += 1
        return self._made

    def _size(self, path: str) -> int:
        inode, size = self._inodes[path], 0
        for change in self.changes:
            if change.inode == inode and change.kind != "sync":
                end = change.offset + len(change.data)
                size = max(size, end) if change.kind == "write" else end
        return size

    def _opened(self, arguments: bytes) -> tuple[str, bytes] | None:
        """Return (path, descriptor) of the file that a call is about, None outside the folder or without a name."""
        found = _FD.match(arguments)
        path = _plain(found[2]) if found else ""
        return (path, found[1]) if found and not found[3] and path in self._inodes else None

    def _paths(self, arguments: bytes) -> list[str]:
        """Return the paths below the folder among the text arguments."""
        folder = _FD.search(arguments)
        base = _plain(folder[2]) if folder else ""
        texts = [_plain(found) for found in _HEX.findall(arguments)]
        paths = [(text if text.startswith("/") else f"{base}/{text}").rstrip("/") for text in texts]
        return [path for path in paths if self._is_below(path)]

    def _is_below(self, path: str) -> bool:
        return path.startswith(f"{self.root}/")


def record(command: Sequence[str], root: Path, trace: Path, cwd: Path) -> Recording:
    """Run a command under strace; return the changes that it made below ``root``, which must be empty before."""
    assert shutil.which("strace"), "strace is needed to record writes"
    options = ["-f", "--seccomp-bpf", "-y", "-xx", "-s", "100000000", "-e", f"trace={CALLS}", "-o", str(trace)]
    done = subprocess.run(["strace", *options, *command], cwd=cwd, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    recording = Recording(str(root))
    for call, arguments, result in _calls(trace, str(root).encode()):
        recording.take(call, arguments, result)
    return recording


def _calls(trace: Path, root: bytes) -> Iterator[tuple[str, bytes, int]]:
    """Yield the successful calls whose arguments name the folder; halves of an interrupted call are joined."""
    mark = b"".join(b"\\x%02x" % byte for byte in root)
    halves: dict[bytes, bytes] = {}
    with open(trace, "rb") as lines:
        for line in lines:
            if line.endswith(b"<unfinished ...>\n"):
                if mark in line:
                    halves[line.split(None, 1)[0]] = line[: -len(b"<unfinished ...>\n")]
                continue
            if resumed := _RESUMED.match(line):
                line = halves.pop(resumed[1], b"") + resumed[2]
            if mark in line and (found := _LINE.match(line)) and not found[4].startswith(b"-"):
                yield found[2].decode(), found[3], int(found[4], 0)


def _bytes(text: bytes) -> bytes:
    return bytes.fromhex(text.replace(b"\\x", b"").decode())


def _plain(text: bytes) -> str:
    return _bytes(text).decode()
