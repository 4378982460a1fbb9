"""A rule whose threshold drops nothing, or nearly everything, is told with the values that it met."""

from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.losses import rule_losses as ask
from tests.worlds.published import plan_of, published

RULES = (
    {"name": "some", "keep": "width >= 60"},
    {"name": "none", "keep": "height between 50 and 1000"},
    {"name": "kinds", "keep": "format <> 'gif'"},
    {"name": "all", "keep": "width >= 1220"},
)
WORDS = tuple(f"A red fox number {n} sleeps in the sun." for n in range(120))


@pytest.fixture(scope="module")
def lake(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("idle") / "lake"
    published(folder, pictures=120, sentences=WORDS, image_rules=RULES, caption="", tags=())
    return folder


@pytest.mark.slow
def test_rules_that_drop_nothing_or_nearly_all_are_told_with_quantiles(lake: Path, monkeypatch: pytest.MonkeyPatch):
    plan, _ = plan_of(3, RULES, False, False)
    with create_or_open(lake, read_only=True) as opened:
        assert [each.rule for each in ask.idle_rules(opened, plan, find(opened, "small"))] == ["all"]
        monkeypatch.setattr(ask, "LEAST_KEPT", 100)
        found = {each.rule: each for each in ask.idle_rules(opened, plan, find(opened, "small"))}
    assert found.keys() == {"none", "all", "length"}
    assert (found["none"].n_dropped, found["none"].n_in) == (0, 117)
    low, median, high = (found["all"].values["width"][n] for n in (0, 2, 4))
    assert (
        low == pytest.approx(40, abs=15)
        and median == pytest.approx(625, abs=15)
        and high == pytest.approx(1210, abs=15)
    )
    assert "drops none of 117 images" in str(found["none"]) and "images.none.keep" in str(found["none"])
    assert "drops 116 of 117 images" in str(found["all"])
    assert "n_words is 9 at 1%" in str(found["length"])


@pytest.mark.parametrize(
    ("keep", "told"),
    [
        ("width >= 5000", "drops all 3 images: width is 30 at 1%"),
        pytest.param("format = 'gif'", "drops all 3 images. A rule belongs", marks=pytest.mark.slow),
        pytest.param("sharpness > 100", "drops all 3 images: sharpness is 0 at 1%", marks=pytest.mark.slow),
    ],
)
def test_a_rule_that_takes_all_of_a_few_is_told_and_a_share_of_them_is_not(tmp_path: Path, keep: str, told: str):
    rules = (
        {"name": "first", "keep": "width >= 1"},
        {"name": "all", "keep": keep},
        {"name": "never", "keep": "height >= 1"},
    )
    published(tmp_path / "lake", pictures=3, image_rules=rules, caption="", tags=())
    plan, _ = plan_of(3, rules, False, False)
    with create_or_open(tmp_path / "lake", read_only=True) as opened:
        found = ask.idle_rules(opened, plan, find(opened, "small"))
    assert [each.rule for each in found] == ["all"]
    assert told in str(found[0])
