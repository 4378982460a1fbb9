"""Sample the vectors that centroids are trained on, and find trained centroids."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.snapshot import files_sql
from pairmill.catalog.pending.eligible import image_rows, sentence_rows
from pairmill.catalog.pending.row_files import newest_paths
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Stage

if TYPE_CHECKING:
    import pyarrow as pa  # imported for typing only: `why` needs just the names of this module

SAMPLE_BLOCK = 50_000  # vectors per block; 100 MB at 1,024 dimensions in fp16


@dataclass(frozen=True)
class Kind:
    """A family of vectors to cluster, such as image embeddings.

    ``kind`` is its name in ``centroids`` and ``clusters``. ``table`` holds the vectors, in ``column`` by ``key``;
    ``content`` is the table whose partitions say to which shard a key's scores belong.
    """

    kind: str
    table: str
    key: str
    column: str
    content: str

    @property
    def unit(self) -> str:
        """The plural noun of the clustered items, for messages: 'sentences' or 'pictures'."""
        return "sentences" if self.key == "content" else "pictures"

    @property
    def centroids(self) -> str:
        """The name under which a plan's scorers have the digest of this kind's centroids."""
        return f"{self.kind}_centroids"

    @property
    def clusters(self) -> str:
        """The name under which a plan's scorers have the digest of this kind's clusters."""
        return f"{self.kind}_clusters"


IMAGES = Kind("image", "image_embedding", "sha256", "image_vector", "image_content")
SENTENCES = Kind("sentence", "sentence_embedding", "content", "sentence_vector", "sentence_content")
# Images again, in separate clusters: those that reach the cap of a cluster, after duplicates are dropped.
SURVIVORS = Kind("balance", "image_embedding", "sha256", "image_vector", "image_content")


@dataclass(frozen=True)
class Trained:
    """Committed centroids: ``path`` of their file, ``eligible`` rows at training, content ``digest``, number ``k``."""

    path: str
    eligible: int
    digest: str
    k: int


def eligible(lake: Lake, plan: Plan, kind: Kind) -> int:
    """Count the rows with a vector that pass the rules so far; k and retraining depend on this number.

    For SURVIVORS, the rows of this connection's last cut.
    """
    return lake.query(f"SELECT count(*) FROM ({_eligible(plan, kind)})")[0][0]


def sample(lake: Lake, plan: Plan, kind: Kind, n: int) -> "pa.Table":
    """Read (key, vector) of the ``n`` eligible rows with the smallest sha256(key || seed), in that order."""
    return lake.table(sample_query(plan, kind, n))


def sample_blocks(lake: Lake, plan: Plan, kind: Kind, n: int) -> "Iterator[pa.Array]":
    """Yield the vectors of `sample` in order, in blocks, because the sample may be larger than memory.

    Run no other statement on the lake meanwhile.
    """
    for batch in lake.blocks(sample_query(plan, kind, n), rows=SAMPLE_BLOCK):
        yield batch["vector"]


def sample_query(plan: Plan, kind: Kind, n: int) -> str:
    """Return SQL for (key, vector) of the ``n`` eligible rows with the smallest sha256(key || seed), in that order."""
    order = f"sha256({kind.key} || '{plan.recipe.seed}')"
    return f"SELECT {kind.key} AS key, vector FROM ({_eligible(plan, kind)}) ORDER BY {order} LIMIT {n}"


def _eligible(plan: Plan, kind: Kind) -> str:
    """Return SQL for key and vector of the rows that pass the rules so far; for SURVIVORS, those of the last cut."""
    if kind is SURVIVORS:
        keys = "SELECT i.sha256 FROM cut_survivors s JOIN facts.images i ON i.rowid = s.n"
    else:
        rows = image_rows(plan, Stage.ASSOCIATE) if kind is IMAGES else sentence_rows(plan, Stage.ASSOCIATE)
        keys = f"SELECT {kind.key} FROM ({rows}) WHERE dropped_by = ''"
    return f"""SELECT {kind.key}, e.{kind.column} AS vector FROM {kind.table} e
        WHERE e.scorer = '{plan.scorer(kind.table)}' AND e.{kind.column} IS NOT NULL AND {kind.key} IN ({keys})"""


def find_trained(lake: Lake, scorer: str) -> Trained | None:
    """Return the newest centroids of the scorer with this digest; None if none are committed."""
    if (found := newest_frozen(lake, "centroids", "n", scorer)) is None:
        return None
    path, n, commit, k = found
    return Trained(path, n, _digest(lake, scorer, commit), k)


def newest_frozen(lake: Lake, table: str, size: str, scorer: str) -> tuple[str, int, int, int] | None:
    """Return (path, ``size``, commit, rows) of the newest file of a scorer in a frozen table; None if it has none.

    ``size`` is the column, equal in all rows of a file, that has the size of the lake when they were frozen.
    """
    sql = f"""SELECT any_value(f.{size}), p."commit", count(*), p.path, p.path IN (SELECT data_file FROM
        ({files_sql((table,))})) FROM partitions p JOIN {table} f ON f.scorer = p.scorer AND f."commit" = p."commit"
        WHERE p."table" = '{table}' AND p.scorer = ? AND p.rows > 0 GROUP BY ALL ORDER BY p."commit" DESC LIMIT 1"""
    found = lake.query(sql, (scorer,))
    if not found:
        return None
    *numbers, path, is_current = found[0]
    return (lake.data_path + path if is_current else newest_paths(lake, table, scorer)[0], *numbers)


def _digest(lake: Lake, scorer: str, commit: int) -> str:
    """Hash the centroids' hex digits in cluster order, in blocks: 2M of 1,024 dimensions are 8 GB."""
    digest = hashlib.sha256()
    ordered = "SELECT hex(vector) AS digits FROM centroids WHERE scorer = ? AND commit = ? ORDER BY cluster"
    for batch in lake.blocks(ordered, (scorer, commit), rows=SAMPLE_BLOCK):
        for digits in batch["digits"]:
            digest.update(digits.as_buffer())
    return digest.hexdigest()[:32]
