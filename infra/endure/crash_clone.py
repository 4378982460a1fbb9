"""Build the files that a power cut may leave after a prefix of recorded changes.

What was synced is there. For the rest there are three disks:

``posix``: nothing else is there. A name needs a sync of its folder.
``journal``: names are there up to some moment, in order, and all those that precede any sync, as ext4 and XFS do it.
``torn``: each name, and each 4 kB page of a write, is there or not; the last page of a write breaks off.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from infra.endure.recorded_writes import Change, Recording

DISKS = ("posix", "journal", "torn")
PAGE, SECTOR = 4096, 512


@dataclass
class CrashClone:
    """What is on the disk: names, and the content of inodes."""

    names: dict[str, int] = field(default_factory=dict)
    content: dict[int, bytearray] = field(default_factory=lambda: defaultdict(bytearray))

    def write(self, to: Path, recording: Recording) -> None:
        """Write the files and folders below ``to``; a file whose folder is gone is gone with it."""
        to.mkdir(parents=True)
        for path, inode in sorted(self.names.items()):
            place = to / os.path.relpath(path, recording.root)
            if not place.parent.is_dir():
                continue
            if inode in recording.folders:
                place.mkdir()
                continue
            place.write_bytes(self.content[inode])
            if os.path.exists(path):  # names of cached files hold their time
                os.utime(place, ns=(os.stat(path).st_atime_ns, os.stat(path).st_mtime_ns))


def whole(recording: Recording, end: int) -> CrashClone:
    """Return what is there if every change of the prefix has reached the disk."""
    clone = CrashClone()
    for change in recording.changes[:end]:
        _apply(clone, change)
    return clone


def crashed(recording: Recording, end: int, disk: str, chance: random.Random) -> CrashClone:
    """Return what a power cut after ``end`` changes leaves on a disk of the kind ``disk``."""
    clone, synced = CrashClone(), _synced(recording, end)
    journalled = max(synced.values(), default=-1)
    if disk == "journal":
        journalled = chance.randint(journalled, end) if journalled < end else end
    for n, change in enumerate(recording.changes[:end]):
        if change.kind == "names":
            folder = _folder(recording, clone, change)
            is_synced = n < (journalled if disk == "journal" else synced.get(folder, -1))
            if is_synced or (disk == "torn" and chance.random() < 0.5):
                _apply(clone, change)
        elif n < synced.get(change.inode, -1):
            _apply(clone, change)
        elif disk == "torn":
            for part in _torn(change, chance):
                _apply(clone, part)
    return clone


def _synced(recording: Recording, end: int) -> dict[int, int]:
    """Return the place of the last sync of each inode in the prefix."""
    return {change.inode: n for n, change in enumerate(recording.changes[:end]) if change.kind == "sync"}


def _folder(recording: Recording, clone: CrashClone, change: Change) -> int:
    """Return the inode of the folder that the last name of a change is in; -1 if that is not on the disk."""
    parent = os.path.dirname(change.names[-1][0])
    return 0 if parent == recording.root else clone.names.get(parent, -1)


def _torn(change: Change, chance: random.Random) -> list[Change]:
    """Return the parts of an unsynced change that reached the disk."""
    if change.kind != "write":
        return [change] if chance.random() < 0.5 else []
    parts = []
    for start in range(0, len(change.data), PAGE):
        page = change.data[start : start + PAGE]
        if start + PAGE >= len(change.data):
            page = page[: chance.randrange(0, len(page) + SECTOR, SECTOR)]
        if page and chance.random() < 0.5:
            parts.append(Change("write", change.inode, change.offset + start, page))
    return parts


def _apply(clone: CrashClone, change: Change) -> None:
    if change.kind == "names":
        for path, inode in change.names:
            if inode is None:
                clone.names.pop(path, None)
            else:
                clone.names[path] = inode
    elif change.kind == "write":
        content = clone.content[change.inode]
        content.extend(bytes(max(0, change.offset - len(content))))
        content[change.offset : change.offset + len(change.data)] = change.data
    elif change.kind == "cut":
        content = clone.content[change.inode]
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
