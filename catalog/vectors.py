"""Vectors and what is made from them: samples for training, unassigned rows, index files, centroids."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import pyarrow as pa

from catalog.lake import Lake
from catalog.plan import Plan, Stage
from catalog.worklist import WorkItem, image_rows, rounds, sentence_rows

# Vectors of one item of an assignment: 1.3 GB of 1,024 dimensions in the worker. A smaller lake is cut into 64.
ASSIGNED, MANY_ITEMS = 131_072, 64
# A worker that searches so many vectors of 512 dimensions peaks at 1.3 GB, 0.5 of which are torch.
RANGE, FEWEST_RANGES = 125_000, 8
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


@dataclass(frozen=True)
class Trained:
    """Centroids as committed: ``path`` of their file, how many rows were eligible then, their content digest."""

    path: str
    eligible: int
    digest: str
    k: int


def eligible(lake: Lake, plan: Plan, kind: Kind) -> int:
    """Rows with a vector that pass the rules known by then: what K and retraining are measured by."""
    return lake.query(f"SELECT count(*) FROM ({_eligible(plan, kind)})")[0][0]


def sample(lake: Lake, plan: Plan, kind: Kind, n: int) -> pa.Table:
    """``key``, ``vector`` of the ``n`` eligible rows with the smallest sha256(key || seed): the same in any order."""
    return lake.table(_sampled(plan, kind, n))


def sample_blocks(lake: Lake, plan: Plan, kind: Kind, n: int) -> Iterator[pa.Array]:
    """The vectors of such a sample in its order, a block at a time: it may be larger than memory. Nothing else may be
    asked of the lake meanwhile."""
    for batch in lake.blocks(_sampled(plan, kind, n), rows=SAMPLE_BLOCK):
        yield batch["vector"]


def _sampled(plan: Plan, kind: Kind, n: int) -> str:
    order = f"sha256({kind.key} || '{plan.recipe.seed}')"
    return f"SELECT {kind.key} AS key, vector FROM ({_eligible(plan, kind)}) ORDER BY {order} LIMIT {n}"


def _eligible(plan: Plan, kind: Kind) -> str:
    rows = image_rows(plan, Stage.ASSOCIATE) if kind is IMAGES else sentence_rows(plan, Stage.ASSOCIATE)
    return (
        f"SELECT {kind.key}, e.{kind.column} AS vector FROM {kind.table} e "
        f"WHERE e.scorer = '{plan.scorer(kind.table)}' "
        f"AND e.{kind.column} IS NOT NULL AND {kind.key} IN (SELECT {kind.key} FROM ({rows}) WHERE dropped_by = '')"
    )


def trained(lake: Lake, scorer: str) -> Trained | None:
    """The newest centroids of one training recipe, or None."""
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
    """Of the centroids' hex digits in the order of clusters; a block at a time, 2M of 1,024 dimensions being 8 GB."""
    digest = hashlib.sha256()
    ordered = "SELECT hex(vector) AS digits FROM centroids WHERE scorer = ? AND commit = ? ORDER BY cluster"
    for batch in lake.blocks(ordered, (scorer, commit), rows=SAMPLE_BLOCK):
        for digits in batch["digits"]:
            digest.update(digits.as_buffer())
    return digest.hexdigest()[:32]


def pending_assignment(lake: Lake, plan: Plan, kind: Kind, clusters: str) -> Iterator[list[WorkItem]]:
    """Vectors that the scorer ``clusters`` has not assigned yet, with the files that hold them; in rounds.

    An item is a shard, or as many as come to ASSIGNED vectors where there are many: each item leaves one index file,
    and every range of clusters opens them all.
    """
    missing = (
        f"FROM {kind.table} e LEFT JOIN (SELECT key FROM clusters WHERE scorer = ?) c ON c.key = e.{kind.key} "
        f"WHERE e.scorer = ? AND e.{kind.column} IS NOT NULL AND c.key IS NULL"
    )
    digests = (clusters, plan.scorer(kind.table))
    sizes = lake.query(f"SELECT e.shard, count(*) {missing} GROUP BY e.shard ORDER BY e.shard", digests)
    most = min(ASSIGNED, sum(n for _, n in sizes) // MANY_ITEMS)
    keys = f"SELECT e.shard, list(DISTINCT e.{kind.key} ORDER BY e.{kind.key}) {missing}"
    for run in rounds(sizes):
        sql = f"{keys} AND e.shard IN (SELECT unnest(?::VARCHAR[])) GROUP BY e.shard ORDER BY e.shard"
        found = lake.query(sql, (*digests, run)) if run else []
        files = score_paths(lake, kind.table, plan.scorer(kind.table), run)
        yield grouped([WorkItem(shard, tuple(each), files[shard], ("clusters",)) for shard, each in found], most)


def grouped(items: Sequence[WorkItem], most: int) -> list[WorkItem]:
    """Neighbours as one item as long as they have at most ``most`` keys together."""
    groups: list[list[WorkItem]] = []
    n = 0
    for item in items:
        if not groups or n + len(item.keys) > most:
            groups.append([])
            n = 0
        groups[-1].append(item)
        n += len(item.keys)
    return [_one(group) for group in groups]


def _one(group: list[WorkItem]) -> WorkItem:
    if len(group) == 1:
        return group[0]
    shard = hashlib.sha256("\x1f".join(item.shard for item in group).encode()).hexdigest()[:32]
    keys = tuple(key for item in group for key in item.keys)
    return WorkItem(shard, keys, tuple(path for item in group for path in item.paths), group[0].tables)


def score_paths(lake: Lake, table: str, scorer: str, shards: list[str]) -> dict[str, tuple[str, ...]]:
    """The files of one scorer's rows by shard, the newest last: of a picture that was opened for another try the file
    before still holds the row that it had."""
    if not shards:
        return {}
    found = lake.query(
        """SELECT shard, list(path ORDER BY "commit", path) FROM partitions
        WHERE "table" = ? AND scorer = ? AND path <> '' AND shard IN (SELECT unnest(?)) GROUP BY shard""",
        (table, scorer, shards),
    )
    return {shard: tuple(lake.data_path + path for path in paths) for shard, paths in found}


def index_paths(lake: Lake, scorer: str) -> tuple[str, ...]:
    """Every file of one vector index, each sorted by cluster."""
    found = lake.query(
        """SELECT path FROM partitions WHERE "table" = 'vector_index' AND scorer = ? AND path <> '' ORDER BY path""",
        (scorer,),
    )
    return tuple(lake.data_path + path for (path,) in found)


def ranges(model: Trained) -> list[tuple[int, int]]:
    """Cut the clusters 0..k-1 into ranges (first, last) that held about RANGE eligible rows at training.

    Depends on the centroids alone, so that what is done for a range stays done when rows arrive.
    """
    n = min(model.k, max(FEWEST_RANGES, -(-model.eligible // RANGE)))
    bounds = [model.k * i // n for i in range(n + 1)]
    return [(first, last - 1) for first, last in pairwise(bounds)]


def watermarks(lake: Lake, table: str, scorer: str) -> dict[str, int]:
    """For each range (as a shard name) of a global step, the commit number up to which its rows were compared."""
    found = lake.query(
        'SELECT shard, max("commit") FROM partitions WHERE "table" = ? AND scorer = ? GROUP BY shard', (table, scorer)
    )
    return dict(found)


def newest(lake: Lake, table: str, scorer: str) -> int:
    """The highest commit number among a scorer's rows, -1 where there are none."""
    return lake.query(
        'SELECT coalesce(max("commit"), -1) FROM partitions WHERE "table" = ? AND scorer = ?', (table, scorer)
    )[0][0]


def best_similarities(lake: Lake, matches: str, keys: list[str], k: int) -> list[tuple[str, int, float]]:
    """(sha256, rank from 1, similarity) of the ``k`` best stored candidates of the given pictures."""
    return lake.query(
        f"SELECT sha256, row_number() OVER (PARTITION BY sha256 ORDER BY similarity DESC, content) AS rank, similarity "
        f"FROM {matches} WHERE sha256 IN (SELECT unnest(?)) QUALIFY rank <= {k}",
        (keys,),
    )
