"""Sample the vectors that centroids are trained on, and find trained centroids."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import image_rows, sentence_rows
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Stage

if TYPE_CHECKING:
    import pyarrow as pa  # `why` reads this module's names alone

SAMPLE_BLOCK = 50_000  # of 1,024 dimensions in fp16: 100 MB


@dataclass(frozen=True)
class Kind:
    """One family of vectors: ``kind`` names it in ``centroids`` and ``clusters``, ``table`` holds it by ``key``."""

    kind: str
    table: str
    key: str
    column: str
    content: str

    @property
    def centroids(self) -> str:
        return f"{self.kind}_centroids"

    @property
    def clusters(self) -> str:
        return f"{self.kind}_clusters"


IMAGES = Kind("image", "image_embedding", "sha256", "image_vector", "image_content")
SENTENCES = Kind("sentence", "sentence_embedding", "content", "sentence_vector", "sentence_content")
# Pictures again, in clusters of their own: those that come as far as the cap of a cluster, where duplicates are gone.
SURVIVORS = Kind("balance", "image_embedding", "sha256", "image_vector", "image_content")
# What the cap of a version was of: before SURVIVORS had clusters, of those in which duplicates are searched.
CAPPED_BY = (SURVIVORS.clusters, IMAGES.clusters)


@dataclass(frozen=True)
class Trained:
    """Centroids as committed: ``path`` of their file, how many rows were eligible then, their content digest."""

    path: str
    eligible: int
    digest: str
    k: int


def eligible(lake: Lake, plan: Plan, kind: Kind) -> int:
    """Count rows with a vector that pass the rules known by then: what K and retraining are measured by. Of SURVIVORS
    those of this connection's last cut."""
    return lake.query(f"SELECT count(*) FROM ({_eligible(plan, kind)})")[0][0]


def sample(lake: Lake, plan: Plan, kind: Kind, n: int) -> "pa.Table":
    """Read ``key``, ``vector`` of the ``n`` eligible rows with the smallest sha256(key || seed), in that order."""
    return lake.table(sampled(plan, kind, n))


def sample_blocks(lake: Lake, plan: Plan, kind: Kind, n: int) -> "Iterator[pa.Array]":
    """Yield the vectors of `sample` in its order, a block at a time: it may be larger than memory. Nothing else may be
    asked of the lake meanwhile."""
    for batch in lake.blocks(sampled(plan, kind, n), rows=SAMPLE_BLOCK):
        yield batch["vector"]


def sampled(plan: Plan, kind: Kind, n: int) -> str:
    """SQL of `sample`."""
    order = f"sha256({kind.key} || '{plan.recipe.seed}')"
    return f"SELECT {kind.key} AS key, vector FROM ({_eligible(plan, kind)}) ORDER BY {order} LIMIT {n}"


def _eligible(plan: Plan, kind: Kind) -> str:
    return (
        f"SELECT {kind.key}, e.{kind.column} AS vector FROM {kind.table} e "
        f"WHERE e.scorer = '{plan.scorer(kind.table)}' "
        f"AND e.{kind.column} IS NOT NULL AND {kind.key} IN ({_keys(plan, kind)})"
    )


def _keys(plan: Plan, kind: Kind) -> str:
    if kind is SURVIVORS:
        return "SELECT i.sha256 FROM cut_survivors s JOIN facts.images i ON i.rowid = s.n"
    rows = image_rows(plan, Stage.ASSOCIATE) if kind is IMAGES else sentence_rows(plan, Stage.ASSOCIATE)
    return f"SELECT {kind.key} FROM ({rows}) WHERE dropped_by = ''"


def trained(lake: Lake, scorer: str) -> Trained | None:
    """Return the newest centroids of the scorer ``scorer`` (its digest), or None."""
    found = lake.query(
        """SELECT p.path, any_value(c.n), p."commit", count(*)
        FROM partitions p JOIN centroids c ON c.scorer = p.scorer AND c."commit" = p."commit"
        WHERE p."table" = 'centroids' AND p.scorer = ? GROUP BY ALL ORDER BY p."commit" DESC LIMIT 1""",
        (scorer,),
    )
    if not found:
        return None
    path, n, commit, k = found[0]
    return Trained(lake.data_path + path, n, _digest(lake, scorer, commit), k)


def _digest(lake: Lake, scorer: str, commit: int) -> str:
    """Hash the centroids' hex digits in the order of clusters; a block at a time, 2M of 1,024 dimensions being 8 GB."""
    digest = hashlib.sha256()
    ordered = "SELECT hex(vector) AS digits FROM centroids WHERE scorer = ? AND commit = ? ORDER BY cluster"
    for batch in lake.blocks(ordered, (scorer, commit), rows=SAMPLE_BLOCK):
        for digits in batch["digits"]:
            digest.update(digits.as_buffer())
    return digest.hexdigest()[:32]
