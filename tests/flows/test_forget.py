"""`pairmill forget` removes one scorer's rows; published pairs stay, and a run scores anew."""

from pathlib import Path

import pytest

from pairmill.flows.command.cli import main
from pairmill.tasks.measure.score_contents import score_images
from tests.worlds.commands import Tell
from tests.worlds.generated import small_settings
from tests.worlds.line import rows, run_part, texts

SCORER = "SELECT DISTINCT scorer FROM image_quality"


def test_what_reads_a_scorer_is_named_and_nothing_changes(curated: Path, tell: Tell):
    [(digest,)] = rows(curated, SCORER)
    told = tell("forget", "--scorer", digest[:8], "--dry-run", "--lake", str(curated))
    [(n,)] = rows(curated, "SELECT count(*) FROM image_quality")
    assert f"scorer image_quality {digest}: {n:,} of image_quality" in told
    assert "demo@1: readable can no longer be evaluated; its pairs and decisions stay" in told
    [(embedding,)] = rows(curated, "SELECT digest FROM scorers WHERE name = 'image_embedding'")
    told = tell("forget", "--scorer", embedding, "--dry-run", "--lake", str(curated))
    assert "demo@1: no rule reads these scores" in told and "image_similarity" in told.partition("kept: ")[2]


@pytest.mark.slow
def test_forgotten_scores_are_erased_and_a_run_makes_them_again(
    curated_copy: Path, tell: Tell, capsys: pytest.CaptureFixture[str]
):
    place = ("--lake", str(curated_copy))
    [(digest,)] = rows(curated_copy, SCORER)
    before = rows(curated_copy, "SELECT * FROM pairs ORDER BY image_id")
    scores = rows(curated_copy, "SELECT sha256, sharpness FROM image_quality ORDER BY ALL")
    tell("forget", "--scorer", digest, "--yes", *place)
    assert rows(curated_copy, "SELECT count(*) FROM image_quality") == [(0,)]
    assert not list((curated_copy / "data" / "main" / "image_quality").rglob("*.parquet"))
    assert rows(curated_copy, "SELECT * FROM pairs ORDER BY image_id") == before
    assert "all whole" in tell("check", "--deep", *place)
    assert main(["forget", "--scorer", digest, "--yes", *place]) == 1
    assert "has no rows, forgotten at 20" in capsys.readouterr().err
    run_part(curated_copy, score_images, small_settings())
    assert rows(curated_copy, "SELECT sha256, sharpness FROM image_quality ORDER BY ALL") == scores
    made, _ = run_part(curated_copy, texts, small_settings())
    assert (made.version, made.is_new) == (1, False)


def test_a_digest_of_no_scorer_is_refused_in_one_line(curated: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["forget", "--scorer", "zz", "--dry-run", "--lake", str(curated)]) == 1
    assert "no scorer begins with 'zz'; name one as in: pairmill sql" in capsys.readouterr().err
