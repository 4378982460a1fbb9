"""A lake of pairs with a judge's vectors: half of the texts are another picture's, and a cut that dropped most of them.

No picture has bytes: the vectors stand where a judge would have written them.
"""

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.write.scorer import register
from pairmill.tasks.measure.judge_features import judge_scorers
from pairmill.tasks.run.items.rows import to_blobs
from tests.worlds.shared import opened_new

DIMENSIONS, KINDS = 16, 12


def planted(n: int, seed: int, wrong: float = 0.5) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return vectors of pictures (n, d) and of texts (n, d), and which pairs are right; towers are random rotations."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((KINDS, DIMENSIONS))
    shown = centres[rng.integers(KINDS, size=n)] + rng.standard_normal((n, DIMENSIONS))
    towers = [np.linalg.qr(rng.standard_normal((DIMENSIONS, DIMENSIONS)))[0] for _ in range(2)]
    is_wrong = rng.random(n) < wrong
    said = np.arange(n)
    said[is_wrong] = rng.permutation(np.flatnonzero(is_wrong))
    noise = 1.2 * rng.standard_normal((n, DIMENSIONS))
    pictures, texts = shown @ towers[0], shown[said] @ towers[1] + noise
    return pictures, texts, said == np.arange(n)


def lake_of_planted_pairs(folder: Path, recipe: Recipe, n: int = 400, seed: int = 1) -> tuple[Lake, np.ndarray]:
    """Make a lake with the version `cut@1`; return it, open for writing, and which pairs are right.

    ``recipe`` is the plan's of the judge. The cut keeps 90 % of the right pairs and 10 % of the wrong ones.
    """
    pictures, texts, is_right = planted(n, seed)
    rng = np.random.default_rng(seed)
    kept = np.flatnonzero(rng.random(n) < np.where(is_right, 0.9, 0.1))
    ids, said = [text_id(str(k)) for k in range(n)], [f"text {k}" for k in range(n)]
    lake = opened_new(folder)

    def insert(table: str, **columns) -> None:
        rows = len(next(iter(columns.values())))
        lake.insert(table, pa.table({**columns, "commit": pa.array([1] * rows, pa.int64())}))

    shard = ["s"] * n
    insert("images", image_id=ids, sha256=ids, alt_text=said, shard=shard)
    insert("image_content", sha256=ids, shard=shard)
    version = {"dataset": ["cut"] * n, "version": pa.array([1] * n, pa.int32())}
    lake.insert("decisions", pa.table({**version, "item_id": ids, "kind": ["image"] * n}))
    of_kept = {name: values[: len(kept)] for name, values in version.items()}
    chosen = {"image_id": [ids[k] for k in kept], "sha256": [ids[k] for k in kept]}
    lake.insert("pairs", pa.table({**of_kept, **chosen, "text1": [said[k] for k in kept]}))
    _, of_pictures, of_texts = judge_scorers(recipe)
    register(lake, [(of_pictures, 1), (of_texts, 1)])
    by = {"shard": shard, "scorer": [of_pictures.digest] * n}
    insert("image_embedding", sha256=ids, image_vector=to_blobs(pictures), **by)
    by["scorer"] = [of_texts.digest] * n
    insert("judge_text", sha256=ids, content=[text_id(text) for text in said], judge_text=to_blobs(texts), **by)
    row = ("cut", 1, recipe.model_dump_json(), "", [], 1, "", False, len(kept), None, "", datetime.now(UTC))
    lake.execute(f"INSERT INTO datasets VALUES ({', '.join('?' * len(row))})", row)
    return lake, is_right
