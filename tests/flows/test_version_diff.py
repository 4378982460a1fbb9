"""`pairmill diff`: every figure against a slow comparison of dictionaries, and the exit status that CI reads."""

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest

import pairmill as pm
from pairmill.catalog.queries.compare.version_diff import GroupCount, VersionDiff
from tests.worlds.commands import Tell
from tests.worlds.line import curated_lake, rows
from tests.worlds.shared import copied, made_once


def made(place: Path) -> None:
    copied(curated_lake(), place)
    with pm.open(place) as lake:
        lake.recut("demo@1", {"balance.cap": 2, "association.max_uses": 3})
        lake.recut("demo@1", {"images.short_side.keep": "least(width, height) >= 150"}, name="other")


@pytest.fixture(scope="module")
def lake() -> Path:
    return made_once("three-versions-of-demo", made)


def pairs_of(lake: Path, name: str, version: int) -> dict[str, dict]:
    with pm.open(lake) as opened:
        found = opened.sql(f"SELECT * FROM pairs WHERE dataset = '{name}' AND version = {version}")
        return {row[found.columns.index("image_id")]: dict(zip(found.columns, row, strict=True))
                for row in found.fetchall()}  # fmt: skip


def compared(lake: Path, after: str) -> tuple[VersionDiff, dict[str, dict], dict[str, dict]]:
    with pm.open(lake) as opened:
        found = opened.diff("demo@1", after)
    name, _, version = after.partition("@")
    return found, pairs_of(lake, "demo", 1), pairs_of(lake, name, int(version))


@pytest.mark.slow
@pytest.mark.parametrize("after", ["demo@2", "other@1"])
def test_the_counts_are_those_of_a_comparison_of_dictionaries(lake: Path, after: str):
    found, was, now = compared(lake, after)
    lost, gained = was.keys() - now.keys(), now.keys() - was.keys()
    not_compared = {"dataset", "version", "sha256", "document_id", "captioner", "caption_status", "synthetic_status",
                    "caption_similarity", "synthetic_similarity"}  # fmt: skip
    differing = [
        each for each in was.keys() & now.keys()
        if any(was[each][name] != now[each][name] for name in was[each].keys() - not_compared)
    ]  # fmt: skip
    assert (found.pairs_before, found.pairs_after) == (len(was), len(now))
    assert (found.gained, found.lost, found.changed) == (len(gained), len(lost), len(differing))
    name, _, version = after.partition("@")
    fates = dict(rows(lake, "SELECT item_id, dropped_by FROM decisions "
                            f"WHERE dataset = '{name}' AND version = {version}"))  # fmt: skip
    causes = {(each.kind, each.cause): each.n for each in found.causes if each.kind == "lost"}
    assert causes == {("lost", rule): n for rule, n in Counter(fates[each] for each in lost).items()}
    assert found.lost > 0


@pytest.mark.slow
def test_groups_add_up_to_what_was_gained_and_lost(lake: Path):
    found, was, now = compared(lake, "demo@2")
    lost = [was[each] for each in was.keys() - now.keys()]
    clusters = Counter(str(row["cluster"]) for row in lost)
    of_cluster = [each for each in found.groups if each.group == "cluster"]
    assert {each.value: each.lost for each in of_cluster} == dict(
        sorted(clusters.items(), key=lambda each: (-each[1], each[0]))[:8]
    )
    sources = dict(rows(lake, "SELECT document_id, any_value(source) FROM documents GROUP BY ALL"))
    by_source = Counter(sources[row["document_id"]] for row in lost)
    assert [each for each in found.groups if each.group == "source"] == [
        GroupCount("source", value, found.gained, n) for value, n in by_source.items()
    ]
    assert sum(each.lost for each in found.groups if each.group == "language") == len(lost)


@pytest.mark.slow
def test_drift_is_that_of_the_values_in_python(lake: Path):
    found, was, now = compared(lake, "demo@2")
    by_measure = {each.measure: each for each in found.drift}
    for measure, value in {
        "text1 characters": lambda row: len(row["text1"]) if row["text1"] else None,
        "similarity1": lambda row: row["similarity1"],
    }.items():
        for spread, rows_of in ((by_measure[measure].before, was), (by_measure[measure].after, now)):
            values = [value(row) for row in rows_of.values() if value(row) is not None]
            assert spread.n == len(values) and spread.mean == pytest.approx(statistics.mean(values))
            assert spread.p50 == pytest.approx(statistics.median(values))


@pytest.mark.slow
def test_a_version_does_not_differ_from_itself(lake: Path):
    found, _, _ = compared(lake, "demo@1")
    assert (found.gained, found.lost, found.changed, found.causes, found.groups) == (0, 0, 0, (), ())


@pytest.mark.slow
def test_the_command_answers_as_json(lake: Path, tell: Tell):
    said = json.loads(tell("diff", "demo@1", "demo@2", "--lake", str(lake), "--format", "json"))
    assert said["gained"] == 0 and said["lost"] > 1 and said["pairs_before"] > said["lost"]
