"""A curated demo world, of another seed than the shipped one, against what was planted in it.

Each floor is the worst of six seeds less 0.02, this one among them, and never below what the project promises.
"""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from tests.demo.truth import DOCUMENTS, Figures, measure
from tests.worlds.generated import ROOT, generate
from tests.worlds.line import curate
from tests.worlds.shared import made_once

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
SEED = 29


def of_the_demo(root: Path) -> tuple[Path, Path] | None:
    """The lake and the world of `make demo DEMO_SEED=29`, if they are there, and nothing that made them has changed.

    A dataset that is older than a file of the code, or of the world, may be another's; so may one of other pages.
    """
    lake, world = root / "lake", root / "infra/demo/world"
    counts = world / "truth/counts.json"
    if not (lake / "catalog.sqlite").exists() or not counts.exists():
        return None
    made = json.loads(counts.read_text())
    code = [path for part in ("flows", "tasks", "ops", "catalog", "infra/demo") for path in (root / part).rglob("*")]
    changed = max(path.stat().st_mtime for path in code if path.is_file() and "__pycache__" not in path.parts)
    with create_or_open(lake, read_only=True) as opened:
        datasets = opened.query("SELECT epoch(created_at) FROM datasets WHERE name = 'demo' AND NOT amended")
        pages = opened.query("SELECT count(*), count(*) FILTER (starts_with(uri, ?)) FROM documents", (f"{world}/",))
    is_same = (made["seed"], made["documents"]) == (SEED, DOCUMENTS) and pages == [(DOCUMENTS, DOCUMENTS)]
    return (lake, world) if is_same and len(datasets) == 1 and datasets[0][0] > changed else None


def _measured(place: Path) -> None:
    place.mkdir()
    lake, world = of_the_demo(ROOT) or (place / "lake", place / "world")
    if lake == place / "lake":
        generate(world, seed=SEED, documents=DOCUMENTS)
        curate(lake, world / "pages")
    (place / "figures.json").write_text(json.dumps(asdict(measure(lake, world))))


@pytest.fixture(scope="session")
def figures() -> Figures:
    return Figures(**json.loads((made_once("truth", _measured) / "figures.json").read_text()))


def test_every_broken_picture_is_in_quarantine_for_its_reason_and_no_good_one(figures: Figures):
    assert (figures.quarantine_right, figures.good_in_quarantine) == (1.0, 0)


def test_of_equal_pictures_all_fall_but_one_and_no_other_does(figures: Figures):
    assert (figures.exact_precision, figures.exact_recall) == (1.0, 1.0)


def test_near_duplicates_are_found_by_their_hash(figures: Figures):
    assert figures.near_precision >= 0.99
    assert figures.near_recall >= 0.95


def test_what_only_embeddings_find_is_a_copy(figures: Figures):
    assert figures.embedding_precision >= 0.96
    assert figures.embedding_recall >= 0.35


def test_the_first_sentence_is_about_what_the_picture_shows(figures: Figures):
    assert figures.first_sentence >= 0.86
    assert figures.first_sentence_elsewhere >= 0.83


def test_the_caption_names_what_the_picture_shows(figures: Figures):
    assert figures.caption >= 0.9


def test_no_cluster_is_over_its_cap_and_no_concept_is_lost_by_balance(figures: Figures):
    assert (figures.clusters_over, figures.concepts_lost) == (0, 0)


def test_retrieval_finds_nearly_what_exact_search_finds(figures: Figures):
    assert figures.recall_at_k >= 0.93


def test_entropy_drops_words_that_stand_nowhere_else(figures: Figures):
    assert figures.entropy_precision >= 0.83
    assert figures.entropy_recall >= 0.98


def test_complexity_drops_what_relates_nothing(figures: Figures):
    assert figures.complexity_precision >= 0.89
    assert figures.complexity_recall >= 0.95


def test_action_drops_what_says_of_nothing_that_it_happens(figures: Figures):
    assert figures.action_precision >= 0.95
    assert figures.action_recall >= 0.74


def test_perplexity_drops_the_garbled_and_what_is_said_over(figures: Figures):
    """Two of three that it drops are good: 5 % of the good ones, which are twenty times as many."""
    assert figures.perplexity_precision >= 0.27
    assert figures.perplexity_recall >= 0.92


def test_sentences_that_are_nearly_equal_are_one(figures: Figures):
    assert figures.sentence_copy_precision >= 0.97
    assert figures.sentence_copy_recall >= 0.83
    assert figures.paraphrase_recall >= 0.23


def test_the_first_tag_names_what_the_picture_shows(figures: Figures):
    assert figures.tag >= 0.75
    assert figures.tag_precision >= 0.51


def test_pictures_of_text_fall_at_the_upper_end(figures: Figures):
    """Some 30 pictures fall there in a world; two wrong ones take 0.06 off the precision."""
    assert figures.text_precision >= 0.86
    assert figures.text_recall >= 0.78


def test_pairs_that_do_not_match_fall_at_the_lower_end(figures: Figures):
    """Half of what falls there does name what is shown, mostly beside another thing."""
    assert figures.mismatch_precision >= 0.36
    assert figures.mismatch_recall >= 0.56
