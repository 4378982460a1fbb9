"""Which rules may have their number set by a share, and the number against numpy's on random values."""

import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.frozen_thresholds import digest, freeze, frozen, measure_threshold, round_threshold, unset
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe, validate
from pairmill.catalog.recipe.thresholds import Compared, compared_score
from pairmill.catalog.terms.error import BadPredicate, BadRecipe
from pairmill.catalog.terms.score import Stage
from tests.examples import examples

BASE = {"name": "small", "models": {"clip": "open_clip:A/b"}}
QUICK = examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


def recipe(keep: str, drop: float = 0.15, of: str = "sentences", **more: object) -> Recipe:
    rule = {"name": "easy", "keep": keep, "calibrate": {"drop": drop, **more}}
    return validate({**BASE, of: [rule]}, "small")


@pytest.mark.parametrize(
    ("keep", "found"),
    [
        ("text_entropy >= {threshold}", Compared("text_entropy", True)),
        ("text_entropy <= {threshold} -- a remark", Compared("text_entropy", False)),
        ("{threshold} <= text_entropy", Compared("text_entropy", True)),
        ("{threshold} >= text_entropy / n_words", Compared("(text_entropy / n_words)", False)),
        ("NOT (text_entropy < {threshold})", None),
    ],
)
def test_the_direction_of_the_comparison_says_which_tail_falls(keep: str, found: Compared | None):
    if found is None:
        found = Compared("text_entropy", True)  # DuckDB's parser turns it
    assert compared_score("easy", keep) == found


@pytest.mark.parametrize(
    ("keep", "remedy"),
    [
        ("text_entropy > {threshold}", "write >= or <="),
        ("text_entropy between 1 and {threshold}", "rules of its own"),
        ("text_entropy between {threshold} and 3", "rules of its own"),
        ("text_entropy >= {threshold} and n_words >= {threshold}", "rules of its own"),
        ("text_entropy >= {threshold} and n_words >= 3", "rules of its own"),
        ("text_entropy >= 2", "`keep` has none"),
        ("text_entropy = {threshold}", "alone on one side"),
        ("text_entropy >= {threshold} + 1", "alone on one side"),
        ("3 >= {threshold}", "a score on the other"),
        ("{threshold}", "rules of its own"),
        ("has_url", "`keep` has none"),
        ("language >= {threshold}", "it compares a VARCHAR"),
        ("has_url >= {threshold}", "it compares a BOOLEAN"),
        ("text <= {threshold}", "it compares a VARCHAR"),
        ("text_entropi >= {threshold}", "did you mean 'text_entropy'"),
        ("getenv('HOME') >= {threshold}", "calls getenv"),
    ],
)
def test_what_no_share_can_set_is_refused_with_the_remedy(keep: str, remedy: str):
    with pytest.raises((BadPredicate, BadRecipe), match="easy") as refused:
        compile_plan(recipe(keep), {})
    assert remedy in str(refused.value)


def test_a_threshold_that_nothing_sets_and_a_share_that_is_none_are_refused():
    with pytest.raises(BadRecipe, match=r"what sets \{threshold\}"):
        validate({**BASE, "images": [{"name": "easy", "keep": "width >= {threshold}"}]}, "small")
    for drop in (0, 1, -0.1, 15, "nan"):
        with pytest.raises(BadRecipe, match="drop"):
            recipe("n_words >= {threshold}", drop)  # pyright: ignore[reportArgumentType]
    for threshold in (math.nan, math.inf):
        with pytest.raises(BadRecipe, match="threshold"):
            recipe("n_words >= {threshold}", 0.15, threshold=threshold)


def test_a_recipe_without_calibrated_rules_has_the_record_and_digest_that_it_had():
    rules = [{"name": "length", "keep": "n_words >= 3"}]
    plain = validate({**BASE, "sentences": rules, "association": {"max_uses": 20}}, "small")
    assert plain.record()["sentences"] == rules
    # As of lake format 1: a digest leaves out settings at their defaults.
    assert plain.digest() == "0fc1f8944b3ff7f2977240f9c4d26144"


def test_a_number_stands_in_plan_and_record_and_a_record_is_a_recipe_with_it():
    plan = compile_plan(recipe("text_entropy >= {threshold}"), {})
    assert plan.sentence_checks[0].keep == "(text_entropy >= CAST(NULL AS DOUBLE))"
    assert [check.name for check in unset(plan, "sentence", Stage.CLIP)] == ["easy"]
    assert unset(plan, "sentence", Stage.PIXELS) == unset(plan, "image", None) == []
    set_ = plan.with_threshold("sentence", "easy", -0.25)
    assert set_.sentence_checks[0].keep == "(text_entropy >= -0.25)"
    assert set_.sentence_checks[0].shown.endswith("-- calibrate: {drop: 0.15}")
    record = set_.recipe.record()
    assert record["sentences"][0]["keep"] == "text_entropy >= {threshold}"
    assert record["sentences"][0]["calibrate"] == {"drop": 0.15, "threshold": -0.25}
    again = compile_plan(validate(record, "small"), {})
    assert again.sentence_checks == set_.sentence_checks and unset(again, "sentence", None) == []
    assert set_.recipe.digest() != plan.recipe.digest()


def columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema({"commit": pa.int64(), "content": pa.string(), "shard": pa.string(), **types})


def lake_with(lake: Lake, values: list[float | None]) -> None:
    for table in ("sentence_content", "sentence_quality"):
        lake.execute(f"DELETE FROM {table}")
    rows = [{"commit": 1, "content": f"s{n}", "shard": "a", "text": f"s{n}"} for n in range(len(values))]
    lake.insert("sentence_content", pa.Table.from_pylist(rows, columns(text=pa.string())))
    scored = [
        {**row, "scorer": "s", "text_entropy": value, "n_words": n % 4}
        for n, (row, value) in enumerate(zip(rows, values, strict=True))
    ]
    schema = columns(scorer=pa.string(), text_entropy=pa.float64(), n_words=pa.int32())
    lake.insert("sentence_quality", pa.Table.from_pylist(scored, schema))


def planned(keep: str, drop: float) -> Plan:
    rules = [
        {"name": "easy", "keep": keep, "calibrate": {"drop": drop}},
        {"name": "before", "keep": "n_words >= 1"},
        {"name": "after", "keep": "text_entropy >= 10000"},
    ]
    content = {**BASE, "sentences": [rules[1], rules[0], rules[2]]}
    return compile_plan(validate(content, "small"), {"sentence_quality": "s"})


VALUE = st.one_of(
    st.none(),
    st.sampled_from([0.0, -0.0, 1.5, 2.0, math.inf, -math.inf, math.nan]),
    st.integers(-9, 9).map(float),
    st.floats(-9000, 9000).map(lambda value: round(value, 4)),
)


@given(st.lists(VALUE, max_size=40), st.sampled_from([0.01, 0.15, 0.29, 0.5, 0.999]), st.booleans())
@QUICK
def test_it_drops_what_was_asked_for_within_equal_values(lake: Lake, values: list, drop: float, keeps_high: bool):
    lake_with(lake, values)
    plan = planned(f"text_entropy {'>=' if keeps_high else '<='} {{threshold}}", drop)
    check = plan.sentence_checks[1]
    found = measure_threshold(lake, plan, "sentence", check)
    reach = [v for n, v in enumerate(values) if n % 4 >= 1 and v is not None and math.isfinite(v)]
    if not reach:
        assert found is None
        return
    assert found is not None
    ordered = np.sort(reach) if keeps_high else np.sort(reach)[::-1]
    most = math.floor(Fraction(str(drop)) * len(ordered))
    assert found.threshold == ordered[most]
    fallen = int((ordered < found.threshold if keeps_high else ordered > found.threshold).sum())
    assert (found.n, found.n_dropped) == (len(ordered), fallen)
    assert fallen <= most < fallen + int((ordered == found.threshold).sum())
    bitten = plan.with_threshold("sentence", "easy", found.threshold).sentence_checks[1].keep
    kept = lake.query(
        f"SELECT count(*) FROM sentence_quality WHERE n_words >= 1 AND {bitten} AND isfinite(text_entropy)"
    )
    assert kept == [(len(ordered) - fallen,)]


@given(st.floats(-1e12, 1e12, allow_subnormal=False), st.booleans())
def test_a_number_has_nine_digits_and_the_item_at_it_passes(value: float, keeps_high: bool):
    found = round_threshold(value, keeps_high)
    assert found <= value if keeps_high else found >= value
    assert found == pytest.approx(value, rel=1e-8)
    assert float(f"{found:.9g}") == found


def test_a_number_belongs_to_text_share_and_scorers_and_not_to_the_way_it_is_written(lake: Lake):
    lake_with(lake, [float(n) for n in range(8)])
    plan = planned("text_entropy >= {threshold}", 0.5)
    check = plan.sentence_checks[1]
    found = measure_threshold(lake, plan, "sentence", check)
    assert found is not None
    freeze(lake, plan, "sentence", check, found, "run", 7)
    assert frozen(lake, digest(plan, "sentence", check)) == found
    for other, same in (
        (planned("text_entropy  >=  {threshold} -- so", 0.5), True),
        (planned("text_entropy >= {threshold}", 0.51), False),
        (planned("text_entropy <= {threshold}", 0.5), False),
        (plan.with_scorer("sentence_quality", "t"), False),
    ):
        assert (digest(other, "sentence", other.sentence_checks[1]) == digest(plan, "sentence", check)) is same
