"""The lake of format 1 opens with nothing pending, by every later commit, and what it published is published still.

A change that makes any of it pending is an exception, with its cost, that its commit explains. How the lake was made:
tests/worlds/lake_of_format_1.py.
"""

import json
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.flows.run.settings import load_recipe
from pairmill.flows.run.survey import survey
from pairmill.tasks.run.place import identity
from tests.worlds.commands import Tell
from tests.worlds.lake_of_format_1 import DEFAULTS, PAGES, RUN, SETTINGS, defaults, unpack


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return unpack(tmp_path)


@pytest.mark.parametrize("read_only", [pytest.param(True, marks=pytest.mark.slow), False])
def test_nothing_is_pending(lake: Path, read_only: bool) -> None:
    recipe = load_recipe("demo", dict(each.split("=", 1) for each in SETTINGS))
    plan, _ = identity.with_scorers(compile_plan(recipe))
    with create_or_open(lake, read_only) as opened:
        found = survey(opened, plan, [str(PAGES)]).found
        assert len(found) > 10 and [each for each in found if each.rows] == []
        assert opened.query("SELECT DISTINCT in_content_order FROM partitions") == [(False,)]


@pytest.mark.slow
def test_the_same_run_does_nothing_and_publishes_nothing(lake: Path, tell: Tell) -> None:
    def held() -> list[tuple]:
        with create_or_open(lake, read_only=True) as opened:
            rows = 'SELECT "table", count(*), sum(rows) FROM partitions GROUP BY ALL'
            return opened.query(
                f"{rows} UNION ALL SELECT name || '@' || version, n_pairs, 0 FROM datasets ORDER BY ALL"
            )

    before = held()
    tell(*RUN, "--lake", str(lake))
    assert held() == before
    assert {"captions", "tags", "synthetic", "imported_kilobytes"} <= {table for table, *_ in before}
    with create_or_open(lake, read_only=True) as opened:
        for table in ("superseded", "takedowns", "amended_versions", "dropped_versions"):
            assert opened.query(f"SELECT 1 FROM {table} LIMIT 1"), table
        assert (
            opened.query("SELECT count(*) FROM pairs WHERE syn_text <> '' AND caption <> '' AND tags <> []")[0][0] > 5
        )


def test_status_shows_its_format_and_datasets(lake: Path, tell: Tell) -> None:
    told = tell("status", "--lake", str(lake))
    assert "format 1," in told and "demo@2" in told and "few@1" in told and "few@2" not in told


def test_the_default_of_a_released_setting_never_changes() -> None:
    """Digests leave out settings at their defaults, so another default would be another meaning of one digest."""
    now = defaults()
    released = json.loads(DEFAULTS.read_text()) if DEFAULTS.exists() else now
    assert {name: now.get(name) for name in released} == released
