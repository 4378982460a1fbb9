"""Generation in waves on the whole line: fewer texts, the same dataset, whatever is killed when."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.curate import measure_steps, text_steps
from pairmill.flows.run.run_start import session
from pairmill.flows.run.settings import Compute, load_recipe
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.run.session import Session
from tests.worlds.line import Stopped, ending_in, rows, run_part, texts
from tests.worlds.shared import copied, made_once, new_lake

RULES = (
    "[{name: short_side, keep: 'least(width, height) >= 64'}, "
    "{name: pair, keep: 'synthetic_similarity >= {threshold}', calibrate: {drop: 0.33}}]"
)
# Inside the first wave; before the second one's first caption, within its captions, and before its last similarities.
ENDS = ("fuse@1:3", "caption main@1:0", "caption main@1:1", "score fused texts@1:1")
FEW = (ENDS[0], ENDS[1])  # inside a wave, and between two


@pytest.fixture(scope="session")
def asked(settings: dict[str, str]) -> dict[str, str]:
    """A cap that bites, and a rule on fused texts that drops a third."""
    return settings | {"images": RULES, "balance.cap": "4", "association.max_uses": "20"}


@pytest.fixture(scope="session")
def measured(pages: Path, asked: dict[str, str]) -> Path:
    """A lake in which all is measured, and no text is generated."""

    def make(place: Path) -> None:
        compute = Compute.model_validate({"workers": 2})
        with session(load_recipe("demo", asked), [str(pages)], str(new_lake(place)), compute) as opened:
            measure_steps(opened, lambda step, held: step(held))

    return made_once("measured-lake", make)


@pytest.fixture(scope="session")
def by_waves(measured: Path, asked: dict[str, str]) -> Path:
    """The lake with its texts, each of whose waves was asked for a second time, because the first time failed."""

    def make(place: Path) -> None:
        run_part(copied(measured, place), lambda opened: text_steps(opened, _tried_again), asked)

    return made_once("lake-by-waves", make)


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


def dataset(lake: Path) -> tuple:
    decided = "SELECT item_id, dropped_by, value FROM decisions WHERE version = (SELECT max(version) FROM datasets)"
    return rows(lake, "SELECT content_digest FROM datasets ORDER BY version DESC LIMIT 1"), rows(
        lake, decided + " ORDER BY 1"
    )


@pytest.mark.slow
def test_a_wave_asks_for_what_the_one_before_left_open_and_the_lake_says_so(by_waves: Path):
    waves = rows(by_waves, "SELECT wave, asked, passed, kept FROM waves ORDER BY wave")
    assert len(waves) >= 2 and [wave for wave, *_ in waves] == list(range(1, len(waves) + 1))
    assert all(asked >= passed >= kept for _, asked, passed, kept in waves)
    assert sum(asked for _, asked, *_ in waves) == rows(by_waves, "SELECT count(*) FROM synthetic")[0][0]
    reached = rows(by_waves, "SELECT n_in FROM funnel WHERE kind = 'image' AND rule = 'pair'")[0][0]
    assert sum(asked for _, asked, *_ in waves) < reached


@pytest.mark.slow
def test_a_wave_whose_asking_failed_is_asked_for_again_as_the_same_wave(by_waves: Path):
    ((waves, last, asked),) = rows(by_waves, "SELECT count(*), max(wave), sum(asked) FROM waves")
    assert waves == last >= 2 and asked == rows(by_waves, "SELECT count(*) FROM synthetic")[0][0]


@pytest.mark.slow
def test_the_dataset_is_the_one_of_all_texts(by_waves: Path, measured: Path, asked: dict[str, str], tmp_path: Path):
    """First all texts are made, by a run that nothing caps; then the run of the cap has only to cut."""
    lake, threshold = copied(measured, tmp_path / "lake"), rows(by_waves, "SELECT threshold FROM thresholds")[0][0]
    number = asked | {"images": asked["images"].replace("drop: 0.33", f"drop: 0.33, threshold: {threshold!r}")}
    run_part(lake, texts, number | {"balance.cap": "1000"})
    everything = rows(lake, "SELECT count(*) FROM synthetic")[0][0]
    _, counts = run_part(lake, texts, number)
    assert counts.get("caption main", 0) == counts.get("fuse", 0) == 0
    assert dataset(lake) == dataset(by_waves)
    assert rows(by_waves, "SELECT count(*) FROM synthetic")[0][0] < everything


@pytest.mark.slow
def test_texts_are_fused_though_a_rule_on_captions_waits_for_its_number(
    measured: Path, asked: dict[str, str], tmp_path: Path
):
    """Its number is found among the captions of the first wave, which are there before it is."""
    lake = copied(measured, tmp_path / "lake")
    waits = "{name: shown, keep: 'caption_similarity >= {threshold}', calibrate: {drop: 0.1}}]"
    run_part(lake, texts, asked | {"images": RULES[: RULES.index("{name: pair")] + waits})
    assert rows(lake, "SELECT count(*) FROM synthetic")[0][0] > 0
    assert rows(lake, "SELECT count(threshold) FROM thresholds") == [(1,)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("ends", [FEW, pytest.param(ENDS, marks=pytest.mark.full)])
def test_what_ends_early_inside_and_between_waves_ends_in_the_same_dataset(
    by_waves: Path, measured: Path, asked: dict[str, str], tmp_path: Path, ends: tuple[str, ...]
):
    lake, made = copied(measured, tmp_path / "lake"), []
    for step in ends:
        with pytest.raises(Stopped):
            run_part(lake, partial(_ended_in, step), asked)
        made += rows(lake, "SELECT count(*) FROM captions")[0]
    first, whole = (rows(by_waves, f"SELECT {of} FROM waves")[0][0] for of in ("min_by(asked, wave)", "sum(asked)"))
    assert made[:2] == [first, first]
    assert len(ends) == 2 or first < made[2] <= made[3] <= whole
    run_part(lake, texts, asked)
    assert dataset(lake) == dataset(by_waves)
    assert rows(lake, "SELECT 1 FROM captions GROUP BY sha256, scorer HAVING count(*) > 1") == []


def _ended_in(step: str, opened: Session) -> None:
    """Generate texts until the commit that ``step`` names, with a commit for each item."""

    def end() -> None:
        raise Stopped(step)

    opened.progress, opened.commit_files = ending_in(step, end), 1
    texts(opened)
