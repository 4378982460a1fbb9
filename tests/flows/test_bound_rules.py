"""A threshold that was calibrated on one model is not inherited by another: the run is refused in one line."""

from pathlib import Path

import pytest

import pairmill as pm
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.trial_cut import models_behind
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.command.cli import main

OTHER = "0" * 32


def behind(lake: Path, rule: str) -> dict[str, str]:
    with create_or_open(lake, read_only=True) as opened:
        dataset = datasets.find(opened, "demo")
        check = next(each for each in plan_of(opened, dataset).image_checks if each.name == rule)
        return models_behind(opened, dataset, check)


def test_a_rule_is_bound_to_all_models_behind_its_score(curated: Path):
    found = behind(curated, "pair_similarity")
    assert {"image_embedding", "sentence_embedding", "caption", "fuse"} <= found.keys()
    assert behind(curated, "short_side") == {}


@pytest.mark.slow
def test_a_run_by_another_model_is_refused_with_the_remedy(
    curated: Path, pages: Path, settings: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    asked = [f"--set={key}={value}" for key, value in settings.items()]
    bound = f"--set=images.short_side.scorers={{image_embedding: '{OTHER}'}}"
    assert main(["run", "demo", "--source", str(pages), "--lake", str(tmp_path / "lake"), *asked, bound]) == 1
    message = capsys.readouterr().err.strip()
    assert (
        message.count("\n") == 0
        and "rule 'short_side': its threshold was calibrated on scores by image_embed" in message
    )
    assert "pairmill calibrate demo short_side" in message
    assert not (tmp_path / "lake").exists()


@pytest.mark.slow
def test_a_recut_by_the_same_models_goes_on_and_by_others_does_not(curated: Path):
    own = behind(curated, "pair_similarity")
    with pm.open(curated) as lake:
        bound = {"images.pair_similarity.scorers": own}
        assert lake.try_recut("demo", bound).kept == len(lake.dataset("demo"))
        with pytest.raises(BadRecipe, match="calibrated on scores by fuse 00000000"):
            lake.try_recut("demo", {"images.pair_similarity.scorers": own | {"fuse": OTHER}})


def test_a_rule_without_scorers_keeps_its_recipe_s_identity():
    recipe = pm.recipe("demo")
    assert all("scorers" not in rule for rule in recipe.record()["images"])
    assert recipe.with_({"images.short_side.scorers": {"image_embedding": OTHER}}).digest() != recipe.digest()
