"""A small lake that loses most pictures to the cap, or has no sentence, is told so with numbers and a remedy."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find, funnel
from pairmill.catalog.queries.losses.rule_losses import heavy_losses
from tests.worlds.published import IMAGE_RULES, plan_of, published


def notes(lake: Path, cap: int, changes: Mapping[str, Any] = MappingProxyType({})) -> list[str]:
    plan, _ = plan_of(cap, IMAGE_RULES, False, False)
    with create_or_open(lake) as opened:
        cut(opened, plan)
        dataset = find(opened, "small")
        plan = replace(plan, recipe=plan.recipe.with_(changes))
        return heavy_losses(opened, plan, funnel(opened, dataset), dataset.n_pairs)


@pytest.mark.slow
def test_a_cap_that_takes_most_pictures_is_told_with_the_cap_that_keeps_all(tmp_path: Path):
    published(tmp_path / "lake", pictures=13, clusters=1, cap=3, caption="", tags=())
    assert notes(tmp_path / "lake", 3) == [
        "1 cluster, cap 3: 9 of 12 pictures fall to balance. Keep all with --set balance.cap=none, or use the recipe "
        "folder."
    ]


@pytest.mark.slow
def test_a_cap_that_takes_few_pictures_is_not_told(tmp_path: Path):
    published(tmp_path / "lake", pictures=13, clusters=1, cap=9, caption="", tags=())
    assert notes(tmp_path / "lake", 9) == []


@pytest.mark.slow
def test_without_a_cap_every_picture_that_passes_is_kept_and_its_texts_are_wanted(tmp_path: Path):
    found = published(tmp_path / "lake", pictures=13, clusters=1, cap="none", caption="", tags=())
    assert found.n_pairs == 12
    plan, _ = plan_of("none", IMAGE_RULES, False, False)
    with create_or_open(tmp_path / "lake") as opened:
        assert "balance" not in {step.rule for step in funnel(opened, find(opened, "small"))}
        cut(opened, plan)
        assert late_cut.select_wave(opened, plan, 1) == 0
        unknown = "SELECT *, CAST(NULL AS VARCHAR) AS state, '' AS value FROM cut_ranks"
        opened.execute(f"CREATE OR REPLACE TEMP VIEW cut_capped AS {unknown}")
        assert late_cut.select_wave(opened, plan, 1) == 12


@pytest.mark.slow
def test_pictures_alone_are_told_what_they_lack(tmp_path: Path):
    published(tmp_path / "lake", pictures=5, sentences=(), similarity=None, alt_text="", caption="", tags=())
    assert notes(tmp_path / "lake", 3) == [
        "no sentences in these sources: nothing can be associated with the 5 pictures. Add pages or captions, or "
        f"describe the pictures: pairmill recaption --lake {tmp_path / 'lake'} --to captions"
    ]
    (told,) = notes(tmp_path / "lake", 3, {"captions.own": "keep"})
    assert told.endswith("to keep pictures without: --set association.at_least=0")


@pytest.mark.slow
def test_captions_that_all_fall_to_one_rule_are_told_with_that_rule(tmp_path: Path):
    published(tmp_path / "lake", pictures=5, sentences=("fox",), similarity=None, alt_text="", caption="", tags=())
    assert notes(tmp_path / "lake", 3) == [
        "none of 1 different sentences is left: 1 by 'length'. Change sentences.length.keep, or describe the pictures: "
        f"pairmill recaption --lake {tmp_path / 'lake'} --to captions"
    ]
