"""What a run redoes: nothing that is committed, whatever came between."""

from pathlib import Path

import pytest

from tests.worlds.generated import PICTURES_ALONE
from tests.worlds.killed import killed
from tests.worlds.line import curate, rows, scored_twice, snapshot, stopped, work_done
from tests.worlds.shared import copied
from tests.worlds.tiny_vlm import save_vlm

STEPS = (
    "ingest", "score images", "count words", "score entropy", "score sentences", "parse sentences", "score perplexity",
    "embed sentences", "assign sentence clusters", "assign image routes", "assign image clusters",
    "semantic duplicates", "associate", "score similarity", "assign balance clusters", "caption main", "score captions",
    "tag", "fuse",
)  # fmt: skip
# Of each kind one: sources, scores of pictures, what is counted over all, clusters, what a model says.
KINDS = ("ingest", "score images", "score entropy", "assign image clusters", "fuse")


@pytest.mark.parametrize("steps", [
    pytest.param(KINDS, marks=pytest.mark.slow, id="kinds"), pytest.param(STEPS, marks=pytest.mark.full, id="all"),
])  # fmt: skip
def test_a_run_that_ends_early_in_each_stage_ends_in_the_dataset_of_an_undisturbed_one(
    steps: tuple[str, ...], curated: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    """By a kill while images are scored, by a fault in any other stage."""
    lake = tmp_path / "lake"
    for step in steps:
        end = killed if step == "score images" else stopped
        end(lake, pages, step, settings)
    curate(lake, pages, settings=settings)
    assert snapshot(lake) == snapshot(curated)
    assert scored_twice(lake) == []


@pytest.mark.slow
def test_a_second_run_does_nothing_and_publishes_nothing(curated_copy: Path, pages: Path, settings: dict[str, str]):
    lake = curated_copy
    before = rows(lake, "SELECT * FROM partitions ORDER BY partition_id"), rows(lake, "FROM datasets")
    published, counts = curate(lake, pages, settings=settings)
    assert work_done(counts) == {}
    assert (published.version, published.is_new) == (1, False)
    assert (rows(lake, "SELECT * FROM partitions ORDER BY partition_id"), rows(lake, "FROM datasets")) == before


@pytest.mark.slow  # 20 s: three runs
def test_new_documents_cost_only_themselves_and_give_the_same_dataset_after_a_run_that_ended_early(
    curated: Path, curated_copy: Path, pages: Path, more_pages: Path, settings: dict[str, str], tmp_path: Path
):
    disturbed = copied(curated, tmp_path / "disturbed")
    old = rows(curated_copy, "SELECT DISTINCT sha256 FROM image_embedding")
    published, counts = curate(curated_copy, pages, more_pages, settings=settings)
    assert (counts["ingest"], published.version) == (2, 2)
    assert not {"train image centroids", "train balance centroids"} & counts.keys()
    assert scored_twice(curated_copy) == []
    new = rows(curated_copy, "SELECT DISTINCT sha256 FROM image_embedding")
    assert len(old) < len(new) <= len(old) + 100
    stopped(disturbed, pages, "score images@1:1", settings, more_pages)  # after one of two items
    half = rows(disturbed, "SELECT DISTINCT sha256 FROM image_embedding")
    assert len(old) < len(half) < len(new)
    curate(disturbed, pages, more_pages, settings=settings)
    assert snapshot(disturbed) == snapshot(curated_copy)
    assert scored_twice(disturbed) == []


@pytest.mark.slow
def test_a_changed_caption_model_redoes_captions_and_what_is_made_from_them_alone(
    curated_copy: Path, pages: Path, settings: dict[str, str], tmp_path: Path
):
    changed = settings | {"models.captioner": save_vlm(tmp_path / "other", "llava")}
    _, counts = curate(curated_copy, pages, settings=changed)
    assert set(work_done(counts)) == {"caption main", "score captions", "fuse", "score fused texts"}


@pytest.mark.slow
def test_a_loosened_rule_scores_only_what_became_eligible(pages: Path, settings: dict[str, str], tmp_path: Path):
    loose = settings | PICTURES_ALONE | {"captioners": "[]"}
    strict = loose | {"images": loose["images"].replace("64", "200")}
    first, _ = curate(tmp_path / "lake", pages, settings=strict)
    before = rows(tmp_path / "lake", "SELECT sha256 FROM image_quality")
    second, _ = curate(tmp_path / "lake", pages, settings=loose)
    assert second.n_pairs > first.n_pairs
    assert scored_twice(tmp_path / "lake") == []
    added = rows(
        tmp_path / "lake",
        "SELECT DISTINCT least(width, height) >= 200 FROM image_quality JOIN image_content USING (sha256) "
        "WHERE image_quality.commit > (SELECT commit FROM datasets WHERE version = 1)",
    )
    assert before and added == [(False,)]
