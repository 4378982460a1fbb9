"""Find published datasets by NAME (the newest version), NAME@VERSION or NAME@TAG; read their funnel and pairs."""

import json
import re
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.demo_weights import demo_weights
from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.catalog.write.version_names import dropped_at, version_names

if TYPE_CHECKING:
    import pyarrow as pa  # 0.1 CPU s

_NUMBER = re.compile(r"[1-9]\d{0,8}")
_COLUMNS = "name, version, recipe, commit, content_digest, amended, n_pairs, recall, run_id, created_at, scorers"


@dataclass(frozen=True)
class Dataset:
    """One row of ``datasets``: a version of a dataset.

    ``recipe`` is JSON, ``commit`` the highest commit number that the version read, ``scorers`` the digests of its
    scorers, ``recall`` the measured recall of its search for candidates.
    """

    name: str
    version: int
    recipe: str
    commit: int
    content_digest: str
    amended: bool
    n_pairs: int
    recall: float | None
    run_id: str
    created_at: datetime
    scorers: list[str] = field(default_factory=list, hash=False)

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    @property
    def where(self) -> str:
        """SQL condition for the rows of this version."""
        return f"dataset = {quoted(self.name)} AND version = {self.version}"

    @property
    def n_texts(self) -> int:
        """Number of columns of real texts (``text1``, …) in the version's pairs, 3 to 5."""
        return text_columns.count(json.loads(self.recipe).get("association", {}).get("top_k", text_columns.RELEASED))

    @property
    def optional_columns(self) -> tuple[str, ...]:
        """Columns of rights, `split` and `size` that the version's recipe fills in its pairs."""
        return text_columns.optional_columns(self.recipe)

    @property
    def columns(self) -> str:
        """SQL for the columns of ``pairs`` that the version has."""
        return text_columns.of_version(self.n_texts, self.optional_columns)

    def scorers_by_name(self, lake: Lake) -> dict[str, str]:
        """Return name -> digest of the scorers whose scores the version was cut by."""
        return dict(lake.query("SELECT name, digest FROM scorers WHERE list_contains(?, digest)", (self.scorers,)))

    def demo_weights(self, lake: Lake) -> tuple[str, ...]:
        """Return the names of the small shipped demo models that contributed to this version; () if there are none."""
        sql = "SELECT DISTINCT model FROM scorers WHERE list_contains(?, digest)"
        return demo_weights(model for (model,) in lake.query(sql, (self.scorers,)))


@dataclass(frozen=True)
class PublishedVersion:
    """A dataset version as a row for lists of versions.

    ``tags`` are the version's tags, separated by spaces; ``weights`` is 'demo' if small shipped models made it.
    ``amended``: whether rows were removed from it since.
    """

    dataset: str
    tags: str
    pairs: int
    recall: float | None
    weights: str
    created: datetime
    amended: bool
    content_digest: str
    run_id: str


@dataclass(frozen=True)
class FunnelStep:
    """Effect of one rule: of ``n_in`` items of ``kind`` ('image' or 'sentence'), it dropped ``n_dropped``."""

    kind: str
    rule: str
    n_in: int
    n_dropped: int


def published(lake: Lake) -> list[Dataset]:
    """Return every published version of every dataset, sorted by name and version."""
    return [Dataset(*row) for row in lake.query(f"SELECT {_COLUMNS} FROM datasets ORDER BY name, version")]


def newest_of_each(lake: Lake) -> list[Dataset]:
    """Return the newest version of each dataset."""
    return list({each.name: each for each in published(lake)}.values())


def published_version(lake: Lake, of: Dataset) -> PublishedVersion:
    """Return the row of a dataset version for lists of versions."""
    tags, weights = version_names(lake).get((of.name, of.version), []), "demo" if of.demo_weights(lake) else ""
    return PublishedVersion(
        str(of), " ".join(tags), of.n_pairs, of.recall, weights, of.created_at, of.amended, of.content_digest, of.run_id
    )


def find(lake: Lake, spec: str) -> Dataset:
    """Return the dataset for ``NAME``, ``NAME@VERSION`` or ``NAME@TAG``. Raise PairmillError if there is none."""
    name, at, version = spec.partition("@")
    found = {(each.name, each.version): each for each in published(lake)}
    versions = [each for each in found.values() if each.name == name]
    if at and versions and not _NUMBER.fullmatch(version):
        version = str(_version_of_tag(lake, name, version))
    is_missing = bool(_NUMBER.fullmatch(version)) and (name, int(version)) not in found
    if is_missing and (day := dropped_at(lake, name, int(version))):
        left = f"its newest is {versions[-1]}" if versions else "none is left"
        raise PairmillError(f"version {version} of dataset '{name}' was dropped on {day}; {left}.")
    if not versions:
        names = sorted({known for known, _ in found})
        remedy = did_you_mean(name, names) or f"there are {', '.join(names) or 'none yet'}."
        raise PairmillError(f"lake '{lake.uri}' has no dataset '{name}'; {remedy}")
    if not version:
        return versions[-1]
    if is_missing:
        raise PairmillError(f"dataset '{name}' has no version {version}; its newest is {versions[-1]}.")
    return found[name, int(version)]


def _version_of_tag(lake: Lake, dataset: str, name: str) -> int:
    """Return the version that ``name`` names. Raise PairmillError if there is none."""
    names = {each: version for (of, version), found in version_names(lake).items() if of == dataset for each in found}
    if name not in names:
        there_are = f" (there are {', '.join(sorted(names))})" if names else ""
        raise PairmillError(
            f"dataset '{dataset}@{name}': after '@' stands a number from 1, as in {dataset or 'demo'}@3, or a name "
            f"that `pairmill tag` gave{there_are}."
        )
    return names[name]


def funnel(lake: Lake, dataset: Dataset) -> list[FunnelStep]:
    """Return how many items reached each rule and how many it dropped, in the order of the cut, images first."""
    sql = f"SELECT kind, rule, n_in, n_dropped FROM funnel WHERE {dataset.where} AND kind IN ('image', 'sentence')"
    return [FunnelStep(*row) for row in lake.query(f"{sql} ORDER BY position")]


def sample_pairs(lake: Lake, dataset: Dataset, n: int = 3) -> list[dict]:
    """Return ``n`` pairs of a version as dictionaries by column, always the same: the smallest sha256 of the id."""
    own = f"SELECT {dataset.columns} FROM pairs WHERE {dataset.where}"
    return lake.rows(f"{own} ORDER BY sha256(image_id) LIMIT {n:d}")


def pairs_table(lake: Lake, dataset: Dataset, limit: int | None = None) -> "pa.Table":
    """Return the rows of ``pairs`` of a version by image id, without pictures: some 1 KB a pair, all in memory."""
    own = f"SELECT {dataset.columns} FROM pairs WHERE {dataset.where}"
    most = "" if limit is None else f" LIMIT {limit:d}"
    return lake.table(f"SELECT * EXCLUDE (dataset, version) FROM ({own}) ORDER BY image_id{most}")


def example_query(dataset: Dataset) -> str:
    """Return an SQL statement, as an example for users, that shows ten pairs of a version."""
    return f"SELECT raw_image_url, text1, similarity1, caption FROM pairs WHERE {dataset.where} LIMIT 10"
