"""Write a file so that it appears complete under its name, or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: str | Path, is_synced: bool = False) -> Iterator[Path]:
    """Yield the path of a temporary file beside ``path`` for the body to write; at its end, rename it to ``path``.

    The temporary file is removed if the body raises. With ``is_synced`` its content is on the disk before the rename:
    else a power cut may leave an empty file under the final name. Two threads of a process may not write one file.
    """
    unfinished = Path(f"{path}.{os.getpid()}.part")
    try:
        yield unfinished
        if is_synced:
            with unfinished.open("rb") as file:
                os.fsync(file.fileno())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise
