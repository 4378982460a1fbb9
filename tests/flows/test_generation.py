"""Generation in waves on the whole line: fewer texts, the same dataset, whatever is killed when."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.curate import curate_steps
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.run.session import Session
from tests.worlds.line import curate, rows, stopped
from tests.worlds.shared import made_once, new_lake

RULES = (
    "[{name: short_side, keep: 'least(width, height) >= 64'}, "
    "{name: pair, keep: 'synthetic_similarity >= {threshold}', calibrate: {drop: 0.33}}]"
)
# Inside the first wave; before the second one's first caption, within its captions, and before its last similarities.
ENDS = ("fuse@1:3", "caption main@1:0", "caption main@1:1", "score fused texts@1:1")


@pytest.fixture(scope="session")
def asked(settings: dict[str, str]) -> dict[str, str]:
    """A cap that bites, and a rule on fused texts that drops a third."""
    return settings | {"images": RULES, "balance.cap": "4", "association.max_uses": "20"}


@pytest.fixture(scope="session")
def by_waves(pages: Path, asked: dict[str, str]) -> Path:
    return made_once("lake-by-waves", lambda place: curate(place, pages, settings=asked))


def dataset(lake: Path) -> tuple:
    decided = "SELECT item_id, dropped_by, value FROM decisions WHERE version = (SELECT max(version) FROM datasets)"
    return rows(lake, "SELECT content_digest FROM datasets ORDER BY version DESC LIMIT 1"), rows(
        lake, decided + " ORDER BY 1"
    )


def test_a_wave_asks_for_what_the_one_before_left_open_and_the_lake_says_so(by_waves: Path):
    waves = rows(by_waves, "SELECT wave, asked, passed, kept FROM waves ORDER BY wave")
    assert len(waves) >= 2 and [wave for wave, *_ in waves] == list(range(1, len(waves) + 1))
    assert all(asked >= passed >= kept for _, asked, passed, kept in waves)
    assert sum(asked for _, asked, *_ in waves) == rows(by_waves, "SELECT count(*) FROM synthetic")[0][0]
    reached = rows(by_waves, "SELECT n_in FROM funnel WHERE kind = 'image' AND rule = 'pair'")[0][0]
    assert sum(asked for _, asked, *_ in waves) < reached


@pytest.mark.slow
def test_the_dataset_is_the_one_of_all_texts(by_waves: Path, pages: Path, asked: dict[str, str], tmp_path: Path):
    """First all texts are made, by a run that nothing caps; then the run of the cap has only to cut."""
    threshold = rows(by_waves, "SELECT threshold FROM thresholds")[0][0]
    number = asked | {"images": asked["images"].replace("drop: 0.33", f"drop: 0.33, threshold: {threshold!r}")}
    curate(tmp_path / "lake", pages, settings=number | {"balance.cap": "1000", "association.retrain_at": "1000"})
    everything = rows(tmp_path / "lake", "SELECT count(*) FROM synthetic")[0][0]
    _, counts = curate(tmp_path / "lake", pages, settings=number | {"association.retrain_at": "1000"})
    assert counts.get("caption main", 0) == counts.get("fuse", 0) == 0
    assert dataset(tmp_path / "lake") == dataset(by_waves)
    assert rows(by_waves, "SELECT count(*) FROM synthetic")[0][0] < everything


def test_texts_are_fused_though_a_rule_on_captions_waits_for_its_number(
    pages: Path, asked: dict[str, str], tmp_path: Path
):
    """Its number is found among the captions of the first wave, which are there before it is."""
    waits = "{name: shown, keep: 'caption_similarity >= {threshold}', calibrate: {drop: 0.1}}]"
    curate(tmp_path / "lake", pages, settings=asked | {"images": RULES[: RULES.index("{name: pair")] + waits})
    assert rows(tmp_path / "lake", "SELECT count(*) FROM synthetic")[0][0] > 0
    assert rows(tmp_path / "lake", "SELECT count(threshold) FROM thresholds") == [(1,)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_what_ends_early_inside_and_between_waves_ends_in_the_same_dataset(
    by_waves: Path, pages: Path, asked: dict[str, str], tmp_path: Path
):
    lake, made = tmp_path / "lake", []
    for step in ENDS:
        stopped(lake, pages, step, asked)
        made += rows(lake, "SELECT count(*) FROM captions")[0]
    first, whole = (rows(by_waves, f"SELECT {of} FROM waves")[0][0] for of in ("min_by(asked, wave)", "sum(asked)"))
    assert made[:2] == [first, first] and first < made[2] <= made[3] <= whole
    curate(lake, pages, settings=asked)
    assert dataset(lake) == dataset(by_waves)
    assert rows(lake, "SELECT 1 FROM captions GROUP BY sha256, scorer HAVING count(*) > 1") == []


@pytest.mark.slow
def test_a_wave_whose_asking_failed_is_asked_for_again_as_the_same_wave(
    pages: Path, asked: dict[str, str], tmp_path: Path
):
    compute = Compute.model_validate({"workers": 2})
    with session(load_recipe("demo", asked), [str(pages)], str(new_lake(tmp_path / "lake")), compute) as held:
        curate_steps(held, _tried_again)
    waves = rows(tmp_path / "lake", "SELECT wave, asked FROM waves ORDER BY wave")
    assert len(waves) >= 2 and [wave for wave, _ in waves] == list(range(1, len(waves) + 1))
    assert sum(asked for _, asked in waves) == rows(tmp_path / "lake", "SELECT count(*) FROM synthetic")[0][0]


def _tried_again(step: Callable[[Session], Any], held: Session) -> Any:
    """Fail while a wave is asked for, by a view where its table is to be made, and try again, as Prefect does."""
    if step is not next_wave:
        return step(held)
    held.lake.execute("CREATE OR REPLACE TEMP VIEW wave_wanted AS SELECT 1 AS n")
    try:
        return step(held)
    except PairmillError:
        held.lake.execute("DROP VIEW wave_wanted")
        return step(held)
