"""`pairmill preflight` forecasts a run from a sample of units: what comes lies inside, and the lake stays as it was."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import contents
from pairmill.catalog.queries.losses.unit_outcomes import UnitOutcomes
from pairmill.flows.preflight.draw import Drawn, Sampling, UnitSample, scale_clusters, size_sample
from pairmill.flows.preflight.yield_forecast import YieldForecast, forecast_yield
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.read.source import open_source, row_of
from pairmill.tasks.collect.listing import listed
from tests.worlds.commands import Tell
from tests.worlds.generated import world
from tests.worlds.line import rows

RULES = ["small", "exact_duplicate", "duplicate", "no_text", "late"]
UNITS = 500


def outcomes(seed: int) -> UnitOutcomes:
    """A whole of UNITS units: small pictures come in crowds, one picture in 25 has a copy in another unit."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 12, UNITS)
    unit = np.repeat(np.arange(UNITS), sizes)
    n = len(unit)
    crowd = rng.beta(0.3, 2, UNITS)[unit]
    content = np.arange(n)
    copies = rng.permutation(n)[: n // 25]
    content[copies] = rng.integers(0, n, len(copies))
    small = rng.random(n) < crowd
    first = np.zeros(n, bool)
    alive = np.flatnonzero(~small)
    first[alive[np.unique(content[alive], return_index=True)[1]]] = True
    late = rng.random(n) < 0.2
    fate = np.where(small, "small", np.where(~first, "exact_duplicate", np.where(late, "late", "")))
    names = tuple(map(str, range(UNITS)))
    text = content.astype(str)
    return UnitOutcomes(names, unit, fate, text, text, np.full(n, 1000))


def part(whole: UnitOutcomes, drawn: np.ndarray) -> UnitOutcomes:
    """The outcomes of a run of these units alone: a picture whose copy is not among them is no copy."""
    chosen = np.isin(whole.unit, drawn)
    late = np.random.default_rng(1).random(len(whole.unit)) < 0.2
    fate, seen = whole.dropped_by.copy(), set()
    for place in np.flatnonzero(chosen & (whole.dropped_by != "small")):
        is_copy = whole.content[place] in seen
        seen.add(whole.content[place])
        was = whole.dropped_by[place]
        fate[place] = (
            "exact_duplicate" if is_copy else was if was != "exact_duplicate" else "late" if late[place] else ""
        )
    places = {unit: place for place, unit in enumerate(drawn.tolist())}
    unit = np.array([places[each] for each in whole.unit[chosen].tolist()])
    rest = (each[chosen] for each in (whole.content, whole.group, whole.n_bytes))
    return UnitOutcomes(tuple(map(str, drawn)), unit, fate[chosen], *rest)


def forecast(whole: UnitOutcomes, share: float, seed: int) -> YieldForecast:
    drawn = np.random.default_rng(seed).permutation(UNITS)[: round(share * UNITS)]
    return forecast_yield(part(whole, drawn), RULES, len(drawn), share)


def test_what_comes_lies_inside_for_each_rule_and_the_pairs():
    inside = dict.fromkeys([*RULES, "pairs", "pictures"], 0)
    for seed in range(50):
        whole = outcomes(seed)
        found = forecast(whole, 0.2, seed)
        came = {rule: (whole.dropped_by == rule).sum() for rule in RULES}
        ranges = {each.rule: each.dropped for each in found.steps} | {"pairs": found.pairs, "pictures": found.pictures}
        for name, n in (came | {"pairs": (whole.dropped_by == "").sum(), "pictures": len(whole.unit)}).items():
            inside[name] += ranges[name].low <= n <= ranges[name].high
    assert min(inside.values()) >= 40, inside


def test_a_caps_share_is_as_uncertain_as_the_sizes_of_the_clusters_differ():
    whole = outcomes(3)
    found = UnitOutcomes(whole.units, whole.unit, np.where(whole.dropped_by == "late", "balance", whole.dropped_by),
                         whole.content, whole.group, whole.n_bytes)  # fmt: skip
    rules = ["small", "exact_duplicate", "duplicate", "balance"]
    alike, unlike = np.array([[50.0, 15.0]] * 6), np.array([[35.0, 0.0]] * 4 + [[80.0, 45.0]] * 2)
    none, same, differing = (
        forecast_yield(found, rules, UNITS, 0.2, clusters=each).steps[-1].dropped for each in (None, alike, unlike)
    )
    assert none == same and none.value == differing.value
    assert differing.low < 0.6 * same.low and 1.3 * same.high < differing.high


def test_a_sample_of_all_units_is_no_forecast_but_a_count():
    whole = outcomes(3)
    found = forecast(whole, 1.0, 0)
    assert found.pairs.low == found.pairs.high == (whole.dropped_by == "").sum()
    for each in found.steps:
        assert each.dropped.low == each.dropped.high == (whole.dropped_by == each.rule).sum()


def test_pictures_that_the_lake_has_give_no_pair():
    whole = outcomes(4)
    known = frozenset(whole.content[::2].tolist())
    found = forecast_yield(whole, RULES, UNITS, 1.0, known)
    assert (
        found.steps[0].rule == "in_the_lake"
        and found.steps[0].dropped.value == np.isin(whole.content, list(known)).sum()
    )


def test_units_are_drawn_for_so_many_pictures_and_parts_of_few_large_ones():
    small = Drawn("a", 100, tuple((f"a/{n}", 10) for n in range(100)))
    pilot = Sampling({"a": small.first(32, 1.0, "")})
    found = size_sample([small], pilot, {"a": 320}, 500, "")
    assert (found.units, found.share, found.by_document) == (50, 0.5, False)
    large = Drawn("b", 3, tuple((f"b/{n}", 10**9) for n in range(3)))
    found = size_sample([large], Sampling({"b": large.first(1, 1.0, "")}), {"b": 10_000}, 600, "")
    assert (found.units, found.by_document) == (3, True) and found.share == pytest.approx(0.02)


@pytest.mark.slow
def test_a_sampled_source_reads_its_units_and_a_share_of_their_documents():
    source = open_source(str(world(seed=12, documents=4)))
    units = [unit.uri for unit in source.units()]
    some = Sampling({source.uri: UnitSample(frozenset(units[:2]), len(units))}).of(source)
    assert [unit.uri for unit in some.units()] == units[:2] and some.uri == source.uri
    none = Sampling({source.uri: UnitSample(frozenset(units), len(units), 1e-9)}).of(source)
    assert [found for unit in none.units() for found in none.read(unit)] == []


def test_the_same_files_in_another_folder_give_the_same_sample(tmp_path: Path):
    original = world(seed=12, documents=4)
    copy = shutil.copytree(original, tmp_path / "another place" / "pages")
    drawn, read = [], []
    with create_or_open(tmp_path / "lake") as lake:
        for folder in (original, copy):
            source = open_source(str(folder))
            contents.list_units(lake, map(row_of, listed(source)), {}, {})
            n, units = contents.draw_units(lake, source.uri, "7", 3)
            drawn.append([uri.removeprefix(source.uri) for uri, _ in units])
            sample = UnitSample(frozenset(uri for uri, _ in units), n, 0.5, "7")
            half = Sampling({source.uri: sample}).of(source)
            read.append({found.uri.removeprefix(source.uri) for unit in half.units() for found in half.read(unit)})
    assert drawn[0] == drawn[1] and len(drawn[0]) == 3
    assert read[0] == read[1] and 0 < len(read[0]) < 3


def test_a_rule_on_the_most_similar_sentence_drops_a_smaller_share_of_the_whole():
    rng = np.random.default_rng(5)
    whole = rng.negative_binomial(0.6, 0.15, 5_000)  # some pictures have many similar sentences, most have few
    seen = rng.binomial(whole, 0.3)
    names = np.arange(len(seen)).astype(str)
    fate = np.where(seen == 0, "alike", "")
    sample = UnitOutcomes(tuple(names), np.arange(len(seen)), fate, names, names, np.full(len(seen), 1000))
    found, linear = (
        forecast_yield(sample, ["alike"], len(seen), 0.3, similar=each) for each in ({"alike": seen}, None)
    )
    came = (whole == 0).sum() / 0.3
    assert found.steps[0].dropped.value == pytest.approx(came, rel=0.2) and came < 0.7 * linear.steps[0].dropped.value
    assert found.steps[0].dropped.low < came < found.steps[0].dropped.high
    assert found.pairs.value > linear.pairs.high


def test_clusters_keep_their_size_in_the_sample():
    found = scale_clusters(load_recipe("demo"), 0.1)
    assert (found.balance.clusters, found.association.clusters) == (100, 6)


@pytest.mark.slow
def test_the_command_forecasts_a_whole_source_exactly_and_leaves_the_lake_as_it_was(
    curated: Path, pages: Path, more_pages: Path, settings: dict[str, str], tell: Tell
):
    asked = [f"--set={key}={value}" for key, value in settings.items()]
    before = rows(curated, 'SELECT count(*), max("commit") FROM commits')
    place = ("--source", str(pages), "--source", str(more_pages), "--lake", str(curated))
    found = json.loads(tell("preflight", "demo", *place, "--sample", "5000", "--format", "json", *asked))
    assert rows(curated, 'SELECT count(*), max("commit") FROM commits') == before
    with create_or_open(curated, read_only=True) as lake:
        [(known,)] = lake.query("SELECT count(*) FROM inputs")
    assert found["units"] == found["of_units"] and 0 < found["of_units"] < known, (
        "only units that the lake has not read"
    )
    assert found["share"] == 1 and found["yields"]["pictures"]["value"] == found["pictures"]
    assert found["costs"]["gigabytes"]["value"] > 0 and found["costs"]["hours"]["value"] > 0
    assert found["costs"]["money"] is None and found["costs"]["gpu_hours"]["value"] == 0
