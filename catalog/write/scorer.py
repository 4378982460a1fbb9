"""Identify scorers by a digest of all that changes their values, and register them in ``scorers``."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyarrow as pa

from catalog.lake.lake import Lake

LIBRARIES = ("torch", "torchvision", "transformers", "open_clip_torch", "numpy", "pillow", "simplejpeg", "faiss-cpu",
             "sentencex", "py3langid", "nltk")  # fmt: skip


@dataclass(frozen=True)
class Scorer:
    """What computes the scores of one table. ``settings``: all that changes values (precision, decoder, resize, prompt,
    token limit ...) as plain JSON, but no placement; ``model``: the weights' content digest, '' without one;
    ``made_from``: the digests of the scorers whose scores it reads."""

    name: str
    table: str
    version: int
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    model: str = ""
    made_from: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """The identity, 32 hex digits. ``table`` is not hashed (it changes no value), nor are libraries (recorded)."""
        identity = [self.name, self.version, self.settings_json(), self.model, sorted(self.made_from)]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    def settings_json(self) -> str:
        """Return the settings as canonical JSON. Raises TypeError for a value JSON cannot hold, ValueError for NaN."""
        return json.dumps(dict(self.settings), sort_keys=True, ensure_ascii=False, allow_nan=False)


def register(lake: Lake, scorers: Sequence[Scorer], commit: int) -> int:
    """Insert the scorers that the lake lacks, with this process's library versions. Returns how many were new."""
    by_digest = {scorer.digest: scorer for scorer in scorers}

    def body() -> int:
        known = {row[0] for row in lake.query("SELECT digest FROM scorers")}
        new = {digest: scorer for digest, scorer in by_digest.items() if digest not in known}
        if new:
            lake.insert("scorers", _rows(new, commit))
        return len(new)

    return lake.retrying(body) if by_digest else 0


def _rows(scorers: Mapping[str, Scorer], commit: int) -> pa.Table:
    found = list(scorers.values())
    return pa.table(
        {
            "digest": list(scorers),
            "name": [s.name for s in found],
            "version": pa.array([s.version for s in found], pa.int32()),
            "settings": [s.settings_json() for s in found],
            "model": [s.model for s in found],
            "made_from": pa.array([sorted(s.made_from) for s in found], pa.list_(pa.string())),
            "libraries": [_libraries()] * len(found),
            "commit": pa.array([commit] * len(found), pa.int64()),
        }
    )


@cache
def _libraries() -> str:
    """Return versions of the installed LIBRARIES, as JSON."""
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return json.dumps(found, sort_keys=True)
