"""Identify scorers by a digest of everything that changes their values, and register them in ``scorers``."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.score import Score

LIBRARIES = ("torch", "torchvision", "transformers", "open_clip_torch", "numpy", "pillow", "simplejpeg", "faiss-cpu",
             "sentencex", "py3langid", "nltk")  # fmt: skip
# Fields of an op that are not hashed as settings: they are hashed separately (files by their content), or placement.
_OWN_FIELDS = {"version", "model", "batch_size", "benchmark_folders", "head_file"}


@dataclass(frozen=True)
class Scorer:
    """Identity of the computation behind one table's scores.

    ``version``: of the op; it rises when the score's values change as a whole, so that all rows are computed again.
    ``settings``: all settings that change values (precision, decoder, resize, prompt, token limit ...) as plain JSON,
    without placement. ``model``: the content digest of the weights, '' without a model. ``made_from``: the digests of
    the scorers whose scores it reads. ``at_default``: the settings that equal their defaults. The digest leaves them
    out, so that a setting which a later version adds does not change existing digests.
    """

    name: str
    table: str
    version: int
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    model: str = ""
    made_from: tuple[str, ...] = ()
    at_default: frozenset[str] = frozenset()

    @property
    def digest(self) -> str:
        """The scorer's identity, 32 hex digits. ``table`` and library versions are not hashed: they change no value."""
        settings = _json({name: value for name, value in self.settings.items() if name not in self.at_default})
        identity = [self.name, self.version, settings, self.model, sorted(self.made_from)]
        return hashlib.sha256(json.dumps(identity).encode()).hexdigest()[:32]

    def settings_json(self) -> str:
        """Return the settings as canonical JSON. Raise TypeError for a value that is not JSON, ValueError for NaN."""
        return _json(self.settings)


def _json(settings: Mapping[str, Any]) -> str:
    return json.dumps(dict(settings), sort_keys=True, ensure_ascii=False, allow_nan=False)


def scorer_of(score: Score, op: Any, decoding: Mapping[str, Any], weights: str, scorers: Mapping[str, str]) -> Scorer:
    """Return the scorer (identity) of ``score`` as computed by ``op``, a dataclass of settings with field ``version``.

    ``decoding`` are settings of the image decoder, empty if the op reads no decoded image. ``weights`` is the content
    digest of the op's model, '' without one. ``scorers`` are the digests of the current scorers by table, including the
    table of vectors that the op reads.
    """
    settings = {each.name: getattr(op, each.name) for each in fields(op) if each.name not in _OWN_FIELDS}
    at_default = frozenset(each.name for each in fields(op) if settings.get(each.name, MISSING) == each.default)
    made_from = (scorers.get(score.vector_table, ""),) if score.vector_table else ()
    settings |= decoding
    return Scorer(score.name, score.table, op.version, settings, weights, made_from, at_default - decoding.keys())


def register(lake: Lake, scorers: Sequence[tuple[Scorer, int]]) -> int:
    """Insert the missing scorers into ``scorers``, each with its commit number and this process's library versions.

    Returns the number of new scorers.
    """
    by_digest = {scorer.digest: (scorer, commit) for scorer, commit in scorers}

    def body() -> int:
        among = ", ".join(f"'{digest}'" for digest in by_digest)
        known = {row[0] for row in lake.query(f"SELECT digest FROM scorers WHERE digest IN ({among})")}
        if new := [pair for digest, pair in by_digest.items() if digest not in known]:
            lake.insert("scorers", _rows(new))
        return len(new)

    return lake.retrying(body) if by_digest else 0


def settings_of(lake: Lake, name: str, made_from: Sequence[str]) -> list[dict[str, Any]]:
    """Return the settings of the scorers with this name and these inputs (sorted digests), newest first."""
    sql = """SELECT settings FROM scorers WHERE name = ? AND made_from = ?::VARCHAR[] ORDER BY "commit" DESC"""
    return [json.loads(settings) for (settings,) in lake.query(sql, (name, list(made_from)))]


def model_of(lake: Lake, digest: str) -> str | None:
    """Return the content digest of a scorer's model, '' without a model; None for an unknown scorer."""
    rows = lake.query("SELECT model FROM scorers WHERE digest = ?", (digest,))
    return rows[0][0] if rows else None


def _rows(found: Sequence[tuple[Scorer, int]]) -> pa.Table:
    """Return the rows of ``scorers``."""
    scorers = [scorer for scorer, _ in found]
    return pa.table(
        {
            "digest": [s.digest for s in scorers],
            "name": [s.name for s in scorers],
            "version": pa.array([s.version for s in scorers], pa.int32()),
            "settings": [s.settings_json() for s in scorers],
            "model": [s.model for s in scorers],
            "made_from": pa.array([sorted(s.made_from) for s in scorers], pa.list_(pa.string())),
            "libraries": [_libraries()] * len(scorers),
            "commit": pa.array([commit for _, commit in found], pa.int64()),
        }
    )


@cache
def _libraries() -> str:
    """Return the versions of the installed LIBRARIES as JSON."""
    found = {}
    for name in LIBRARIES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return json.dumps(found, sort_keys=True)
