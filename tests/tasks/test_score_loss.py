"""s-CLIPLoss of stored candidates: against a slow twin, and the same whatever comes later."""

import shutil
from pathlib import Path

import numpy as np

from pairmill.tasks.relate.associate import associate, score_loss
from tests.worlds.generated import small_settings
from tests.worlds.line import curated_lake, rows, run_part

BATCH = "scorer IN (SELECT digest FROM scorers WHERE name = 'cliploss_batch')"


def _vectors(lake: Path, table: str, key: str, column: str) -> dict[str, np.ndarray]:
    found = rows(lake, f"SELECT {key}, {column} FROM {table} WHERE {column} IS NOT NULL")
    return {name: np.frombuffer(blob, "<f2").astype(np.float64) for name, blob in found}


def test_a_candidate_has_the_loss_of_the_paper_within_the_frozen_batch_and_no_run_changes_it(tmp_path: Path):
    lake = tmp_path / "lake"
    shutil.copytree(curated_lake(), lake)
    scored = small_settings() | {"scores": "{cliploss: {}}"}
    _, first = run_part(lake, score_loss, scored)
    assert first["score s-CLIPLoss"] > 0
    pictures = _vectors(lake, "image_embedding", "sha256", "image_vector")
    texts = _vectors(lake, "sentence_embedding", "content", "sentence_vector")
    batch = rows(lake, f"SELECT sha256, content FROM cliploss WHERE {BATCH}")
    found = rows(lake, f"SELECT sha256, content, s_cliploss FROM cliploss WHERE NOT {BATCH} ORDER BY ALL")
    assert len(found) == rows(lake, "SELECT count(*) FROM match_candidates")[0][0]
    for sha, content, value in found[::37]:
        cosine = pictures[sha] @ texts[content]
        batch_pictures, batch_texts = ([*each] for each in zip(*batch, strict=True))
        beside = [pictures[sha] @ texts[each] for each in batch_texts + [content] * (content not in batch_texts)]
        above = [pictures[each] @ texts[content] for each in batch_pictures + [sha] * (sha not in batch_pictures)]
        both = [np.log(np.mean(np.exp((np.array(cosines) - 1) / 0.01))) for cosines in (beside, above)]
        assert abs(value - (cosine - 0.01 / 2 * sum(both))) < 2e-3
    _, again = run_part(lake, associate, scored)
    assert not again.get("score s-CLIPLoss") and not again.get("draw a batch of pairs")
    assert rows(lake, f"SELECT sha256, content, s_cliploss FROM cliploss WHERE NOT {BATCH} ORDER BY ALL") == found
