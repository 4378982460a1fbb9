"""`pairmill preflight` forecasts a run from a sample of units: what comes lies inside, and the lake stays as it was."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import contents
from pairmill.catalog.queries.losses.unit_outcomes import UnitOutcomes
from pairmill.flows.preflight.draw import Drawn, Sampling, scaled, sized
from pairmill.flows.preflight.sampled_source import UnitSample, sample_of
from pairmill.flows.preflight.yield_forecast import CountedSample, YieldForecast, forecast_yield
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.read.source import open_source, row_of
from pairmill.ops.whole.repeats import still_none
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
    return forecast_yield(CountedSample(part(whole, drawn), RULES, len(drawn), share))


def test_what_comes_lies_inside_for_each_rule_and_the_pairs():
    inside = dict.fromkeys([*RULES, "pairs", "pictures"], 0)
    for seed in range(20):
        whole = outcomes(seed)
        found = forecast(whole, 0.2, seed)
        came = {rule: (whole.dropped_by == rule).sum() for rule in RULES}
        ranges = {each.rule: each.dropped for each in found.steps} | {"pairs": found.pairs, "pictures": found.pictures}
        for name, n in (came | {"pairs": (whole.dropped_by == "").sum(), "pictures": len(whole.unit)}).items():
            inside[name] += ranges[name].low <= n <= ranges[name].high
    assert min(inside.values()) >= 16, inside


def test_what_a_cap_drops_varies_as_the_sizes_of_the_few_clusters_of_a_sample():
    inside, narrower = 0, 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sizes = rng.gamma(4, 10, 60).astype(int) + 1  # of the whole's clusters, of which the sample has 12
        reach, dropped = sizes[:12], np.maximum(0, sizes[:12] - 35)
        fate = np.concatenate(
            [np.repeat(["", "balance"], [n - over, over]) for n, over in zip(reach, dropped, strict=True)]
        )
        content = np.arange(len(fate)).astype(str)
        unit = rng.permutation(len(fate)) // 4
        names = tuple(map(str, range(unit.max() + 1)))
        sample = UnitOutcomes(names, unit, fate, content, content, np.full(len(fate), 1000))
        rules = ["exact_duplicate", "duplicate", "no_text", "balance"]
        clusters = np.stack([reach, dropped], axis=1).astype(float)
        found, without = (
            forecast_yield(CountedSample(sample, rules, len(names), 0.2, clusters=each)) for each in (clusters, None)
        )
        came = np.maximum(0, sizes - 35).sum() / sizes.sum() * len(fate) / 0.2
        drop, plain = found.steps[-1].dropped, without.steps[-1].dropped
        inside += drop.low <= came <= drop.high
        narrower += plain.high - plain.low < drop.high - drop.low
        assert found.pairs.high - found.pairs.low > without.pairs.high - without.pairs.low
    assert inside >= 16 and narrower == 20


def test_a_sample_of_all_units_is_no_forecast_but_a_count():
    whole = outcomes(3)
    found = forecast(whole, 1.0, 0)
    assert found.pairs.low == found.pairs.high == (whole.dropped_by == "").sum()
    for each in found.steps:
        assert each.dropped.low == each.dropped.high == (whole.dropped_by == each.rule).sum()


def test_pictures_that_the_lake_has_give_no_pair():
    whole = outcomes(4)
    known = frozenset(whole.content[::2].tolist())
    found = forecast_yield(CountedSample(whole, RULES, UNITS, 1.0, known))
    assert (
        found.steps[0].rule == "in_the_lake"
        and found.steps[0].dropped.value == np.isin(whole.content, list(known)).sum()
    )


def test_units_are_drawn_for_so_many_pictures_and_parts_of_few_large_ones():
    small = Drawn("a", 100, tuple((f"a/{n}", 10) for n in range(100)))
    pilot = Sampling({"a": small.first(32, 1.0, "")})
    found = sized([small], pilot, {"a": 320}, 500, "")
    assert (found.units, found.share, found.by_document) == (50, 0.5, False)
    large = Drawn("b", 3, tuple((f"b/{n}", 10**9) for n in range(3)))
    found = sized([large], Sampling({"b": large.first(1, 1.0, "")}), {"b": 10_000}, 600, "")
    assert (found.units, found.by_document) == (3, True) and found.share == pytest.approx(0.02)


def test_a_sampled_source_reads_its_units_and_a_share_of_their_documents():
    source = open_source(str(world(seed=12, documents=4)))
    units = [unit.uri for unit in source.units()]
    some = sample_of(source, UnitSample(frozenset(units[:2]), len(units)))
    assert [unit.uri for unit in some.units()] == units[:2] and some.uri == source.uri
    none = sample_of(source, UnitSample(frozenset(units), len(units), 1e-9))
    assert [found for unit in none.units() for found in none.read(unit)] == []


def test_the_same_files_in_another_folder_give_the_same_sample(tmp_path: Path):
    original = world(seed=12, documents=4)
    copy = shutil.copytree(original, tmp_path / "another place" / "pages")
    drawn, read = [], []
    with create_or_open(tmp_path / "lake") as lake:
        for folder in (original, copy):
            source = open_source(str(folder))
            contents.list_units(lake, map(row_of, listed(source)), {}, {})
            n, units = contents.drawn_units(lake, source.uri, "7", 3)
            drawn.append([uri.removeprefix(source.uri) for uri, _ in units])
            half = sample_of(source, UnitSample(frozenset(uri for uri, _ in units), n, 0.5, "7"))
            read.append({found.uri.removeprefix(source.uri) for unit in half.units() for found in half.read(unit)})
    assert drawn[0] == drawn[1] and len(drawn[0]) == 3
    assert read[0] == read[1] and 0 < len(read[0]) < 3


def test_items_with_none_become_fewer_in_the_whole_as_from_a_part_of_the_sample_to_all_of_it():
    rng = np.random.default_rng(5)
    whole = rng.negative_binomial(0.6, 0.15, 5_000)  # some pictures have many similar sentences, most have few
    sample = rng.binomial(whole, 0.3)
    came = (whole == 0).sum() / (sample == 0).sum()
    assert still_none(sample, 0.3) == pytest.approx(came, abs=0.2) and came < 0.7  # linear would be 1
    assert still_none(np.zeros(9, int), 0.3) == still_none(sample, 1.0) == 1.0


def test_clusters_keep_their_size_in_the_sample():
    found = scaled(load_recipe("demo"), 0.1)
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
