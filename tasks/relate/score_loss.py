"""Score candidate sentences by s-CLIPLoss, from the stored vectors of the ranges of sentence clusters.

The batch is drawn once and frozen: BATCH pictures, those with the smallest sha256(sha256 || seed), each with its best
candidate. So neither order nor what else a run brings changes a score, and a new pair changes no old one. When the
sentence clusters are trained anew, so is the batch. A removal takes its items out of the batch; stored scores stay.
At 1,024 dimensions and 100 GFLOP/s, a million pictures or sentences take 42 CPU s.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import index_ranges, loss_batch, training
from pairmill.catalog.pending.index_ranges import IndexFiles
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SENTENCES
from pairmill.catalog.terms.scores import CLIPLOSS
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.pair.cliploss import VERSION, exp_sums, s_cliploss
from pairmill.tasks.relate.cluster import pending_ranges
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import read_range, read_table, scalars, to_halves, to_vectors
from pairmill.tasks.run.session import Session

BATCH = 2_048
# The columns of a candidate that are read.
CANDIDATE = pa.schema([("sha256", pa.string()), ("content", pa.string()), ("similarity", pa.float64())])
TABLE, VALUE = CLIPLOSS.table, CLIPLOSS.columns[0].name
DRAW = "draw a batch of pairs"


def score_loss(session: Session) -> None:
    """Score the candidates that lack an s-CLIPLoss if the recipe asks for it; draw the batch if there is none."""
    lake, plan = session.lake, session.plan
    model = training.find_trained(lake, plan.scorer(SENTENCES.centroids)) if plan.computes(TABLE) else None
    if model is None:
        return
    matches, settings = plan.scorer("matches"), {"pairs": BATCH, "seed": session.recipe.seed}
    batch = session.use(loss_batch.NAME, Scorer(loss_batch.NAME, TABLE, VERSION, settings, "", (matches,)))
    if not index_ranges.watermarks(lake, TABLE, batch):
        pairs = loss_batch.draw(lake, plan, BATCH)
        part = Part(TABLE, pairs.append_column(VALUE, pa.nulls(len(pairs), pa.float64())), batch)
        item = WorkItem(loss_batch.NAME, (batch,))
        if not session.compute(DRAW, len(pairs), lambda: session.store(DRAW, item, [part])):
            return
    digest = session.use(TABLE, Scorer(CLIPLOSS.name, TABLE, VERSION, {}, "", (batch,)))
    upto = index_ranges.newest(lake, "match_candidates", matches)
    pending = pending_ranges(session, model, TABLE, digest, upto)
    if not pending:
        return
    drawn = loss_batch.vectors(lake, session.plan)
    keys = tuple(drawn[name].to_numpy().astype(str) for name in ("sha256", "content"))
    halves = tuple(to_halves(drawn[name]) for name in ("image_vector", "sentence_vector"))
    files = [index_ranges.index_files(lake, plan.scorer(name)) for name in ("image_routes", SENTENCES.clusters)]
    found = index_ranges.merged_paths(lake, "match_candidates", matches, [*pending])
    items = [
        WorkItem(name, (str(upto),), found[name], inputs={**span, "files": files}) for name, span in pending.items()
    ]
    session.work(CLIPLOSS.step, items, ScoreLoss(matches, digest, keys, halves))


@dataclass(frozen=True, eq=False)
class ScoreLoss:
    """Job: score the new candidates of one range of sentence clusters, by the scorer ``matches``, into ``cliploss``.

    The batch has the ids ``keys`` and the ``vectors`` (b, d) float16, of its pictures and of its sentences.
    """

    unit: ClassVar[str] = "cluster ranges"

    matches: str
    scorer: str
    keys: tuple[np.ndarray, ...]
    vectors: tuple[np.ndarray, ...]

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the candidates of one range; return rows of ``cliploss``."""
        of_range = [("shard", "==", item.shard), ("scorer", "==", self.matches), ("commit", ">", item.inputs["done"])]
        rows = pa.concat_tables(
            [CANDIDATE.empty_table(), *(read_table(p, CANDIDATE.names, of_range) for p in item.paths)]
        )
        span, files = item.inputs["range"], item.inputs["files"]
        pictures = _sums(rows["sha256"], files[0], span, self.vectors[1])
        texts = _sums(rows["content"], files[1], span, self.vectors[0])
        held = np.isin(rows["content"].to_numpy(), self.keys[1]), np.isin(rows["sha256"].to_numpy(), self.keys[0])
        values = s_cliploss(rows["similarity"].to_numpy(), (pictures, texts), held, len(self.keys[0]))
        scored = rows.drop_columns("similarity").append_column(VALUE, pa.array(scalars(values), pa.float64()))
        return [Part(TABLE, scored.filter(pa.array(~np.isnan(values))), self.scorer)]


def _sums(keys: pa.ChunkedArray, files: IndexFiles, span: tuple[int, int], others: np.ndarray) -> np.ndarray:
    """Return `exp_sums` over ``others`` of the vector of each key, by the clusters ``span``; NaN for a removed one."""
    wanted, at = np.unique(keys.to_numpy().astype(str), return_inverse=True)
    rows = read_range(files.paths, ["key", "index_vector", "cluster"], span, files.is_small)
    stored, first = np.unique(rows["key"].to_numpy().astype(str), return_index=True)
    there = np.isin(stored, wanted)
    sums = np.full(len(wanted), np.nan)
    if there.any():
        vectors = to_vectors(rows["index_vector"].take(pa.array(first[there])))
        sums[np.searchsorted(wanted, stored[there])] = exp_sums(vectors, others.astype(np.float32))
    return sums[at]
