"""Canaries against a lake in which the share of wrong texts that a rule accepts is planted."""

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pairmill.catalog.cut import canaries, facts, pair_fit
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.figures.canary_rates import canary_rate, canary_rates, wrong_pairs_line
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from tests.worlds.shared import opened_new

SCORERS = {name: name for name in ("image_quality", "image_groups", "matches", "sentence_quality", "sentence_groups",
                                   "image_similarity")}  # fmt: skip
PICTURES, PLANTED, GOOD, WRONG = 1000, 0.3, 0.9, 0.2
FITS = {"name": "fits", "keep": "match_similarity >= 0.5"}


def plan(seed: int = 0, **parts: object) -> Plan:
    recipe = {
        "name": "tried",
        "seed": seed,
        "models": {"clip": "open_clip:A/b"},
        "images": [FITS],
        "sentences": [{"name": "length", "keep": "n_words >= 3"}],
        "association": {"top_k": 1},
        "sentence_duplicates": {},
        "balance": {"cap": "none"},
    }
    return compile_plan(Recipe.model_validate(recipe | parts), SCORERS)


def fill(lake: Lake) -> int:
    """Fill a lake in which each picture has four candidates: three that canaries may not get, and one from elsewhere.

    Withheld are the sentence of its own document, the one of its near copy's document, and one of another document in
    the group of the first. They pass every rule; so does the fourth for a PLANTED share. Return how many these are.
    """
    draw = random.Random(1)
    passing = [draw.random() < PLANTED for _ in range(PICTURES)]
    n = range(PICTURES)

    def insert(table: str, **columns: list) -> None:
        size = len(next(iter(columns.values())))
        lake.insert(table, pa.table({**columns, "commit": pa.array([1] * size, pa.int64())}))

    own, copy = [f"p{i:05}" for i in n], [f"q{i:05}" for i in n]
    shas = own + copy
    for table in ("images", "image_content"):
        more = {} if table == "image_content" else {
            "image_id": [f"i{sha}" for sha in shas], "document_id": [f"d{sha}" for sha in shas],
            "width": pa.array([100] * len(shas), pa.int32()), "height": pa.array([100] * len(shas), pa.int32()),
            "position": pa.array([0] * len(shas), pa.int32()), "shard": [f"s{i % 7}" for i in range(len(shas))],
        }  # fmt: skip
        insert(table, sha256=shas, **more)
    insert("image_quality", sha256=shas, scorer=["image_quality"] * len(shas), brightness=[0.5] * len(shas))
    insert("image_groups", sha256=shas, scorer=["image_groups"] * len(shas), group_id=own * 2)
    insert("image_similarity", sha256=shas, scorer=["image_similarity"] * len(shas), input_digest=[""] * len(shas),
           alt_similarity=[GOOD] * len(shas), match_similarity=[GOOD] * len(shas),
           best_similarity=[GOOD] * len(shas))  # fmt: skip
    # Own and copy stand in the pictures' documents; alike (one group with own) and other in documents without any.
    said = [(f"{kind}{i:05}", document, shard) for i in n for kind, document, shard in (
        ("own", f"dp{i:05}", f"s{i % 7}"), ("copy", f"dq{i:05}", f"s{(PICTURES + i) % 7}"),
        ("alike", f"e{i}", "s0"), ("other", f"f{i}", "s0"))]  # fmt: skip
    contents, documents, shards = map(list, zip(*said, strict=True))
    insert("sentences", sentence_id=contents, content=contents, document_id=documents, shard=shards)
    insert("sentence_content", content=contents, text=contents)
    insert("sentence_quality", content=contents, scorer=["sentence_quality"] * len(contents),
           n_words=pa.array([5] * len(contents), pa.int32()))  # fmt: skip
    alike = [name for name in contents if name.startswith(("own", "alike"))]
    insert("sentence_groups", content=alike, scorer=["sentence_groups"] * len(alike),
           group_id=[f"alike{name[-5:]}" for name in alike])  # fmt: skip
    pairs = [(sha, f"{kind}{sha[1:]}", value) for sha in shas for kind, value in (
        ("copy", GOOD), ("alike", GOOD), ("other", GOOD if passing[int(sha[1:])] else WRONG))]  # fmt: skip
    keys, found, values = map(list, zip(*pairs, strict=True))
    insert("match_candidates", sha256=keys, content=found, similarity=values, scorer=["matches"] * len(keys))
    return sum(passing)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Draw 200 of the 1,000 pictures: of all of them, a share has no error."""
    monkeypatch.setattr(canaries, "CANARIES", 200)


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Lake, float]]:
    place: Path = tmp_path_factory.mktemp("canaries")
    with opened_new(place / "lake") as lake:
        passing = fill(lake)
        yield lake, passing / PICTURES


def tried(lake: Lake, of: Plan) -> dict[str, tuple[int, int]]:
    facts.attach(lake, of)
    return {rule: (n, rejected) for rule, n, rejected in canaries.try_rules(lake, of)}


@pytest.mark.parametrize(
    ("seeds", "least"), [pytest.param(5, 4, marks=pytest.mark.slow), pytest.param(20, 18, marks=pytest.mark.full)]
)
def test_the_interval_covers_the_planted_share_as_often_as_it_claims(
    planted: tuple[Lake, float], seeds: int, least: int
):
    lake, truth = planted
    covered = []
    for seed in range(seeds):
        n, rejected = tried(lake, plan(seed))["fits"]
        assert n == canaries.CANARIES
        rate = canary_rate("fits", n, n - rejected)
        covered.append(rate.low <= truth <= rate.high)
    assert sum(covered) >= least  # of 20 at 95 %, fewer than 18 has a chance of 7 %, and these seeds are fixed


def test_rules_on_candidates_and_on_generated_texts_get_the_same_sentences(planted: tuple[Lake, float]):
    lake, _ = planted
    rules = [FITS, {"name": "pair", "keep": "synthetic_similarity between 0.5 and 0.95"}]
    captions = {"captioners": [{"name": "main"}], "tags": {"vocabulary": ["field"]}, "fuse": {}}
    models = {"clip": "open_clip:A/b", "captioner": "hf:tiny", "fuser": "hf:tiny"}
    found = tried(lake, plan(images=rules, candidates=[{"name": "near", "keep": "similarity >= 0.5"}], models=models,
                             **captions))  # fmt: skip
    assert set(found) == {"near", "fits", "pair"}
    assert len({*found.values()}) == 1


def test_a_rule_on_captions_is_tried_with_those_of_other_pictures(tmp_path: Path):
    """All captions fit; of those of others every second does; of the sentences PLANTED."""
    rule = {"name": "pair", "keep": "caption_similarity >= 0.5 and width >= 50"}
    models = {"clip": "open_clip:A/b", "captioner": "hf:tiny"}
    asked = plan(images=[rule], captioners=[{"name": "main"}], models=models).with_scorer("caption_similarity", "by")
    with opened_new(tmp_path / "lake") as lake:
        passing = fill(lake)
        same = {"scorer": "by", "shard": "s", "input_digest": "", "commit": 1, "caption_similarity": GOOD}
        of_others = [{"sha256": f"p{i:05}", "caption_canary": GOOD if i % 2 else WRONG} for i in range(PICTURES)]
        lake.insert("caption_similarity", pa.Table.from_pylist([same | each for each in of_others]))
        n, rejected = tried(lake, asked)["pair"]
    rate = canary_rate("pair", n, n - rejected)
    assert n == canaries.CANARIES and rate.low <= 0.5 <= rate.high and not rate.low <= passing / PICTURES <= rate.high


def test_a_rule_that_reads_no_text_has_no_canaries(planted: tuple[Lake, float]):
    lake, _ = planted
    assert not tried(lake, plan(images=[{"name": "wide", "keep": "width >= 50"},
                                        {"name": "alt", "keep": "alt_similarity >= 0.1"}]))  # fmt: skip


def test_canaries_are_published_beside_the_funnel_and_change_nothing(planted: tuple[Lake, float]):
    lake, _ = planted
    for _ in range(2):
        cut(lake, plan())
        published = publish(lake, plan(), "run", None, lambda: 2)
    assert (published.version, published.is_new) == (1, False)
    (rate,) = canary_rates(lake, find(lake, "tried"))
    assert (rate.rule, rate.canaries) == ("fits", canaries.CANARIES)
    assert "hardly nearer" not in wrong_pairs_line(lake, find(lake, "tried"))
    lake.execute("UPDATE wrong_pairs SET wrong_before = 0.95")
    assert wrong_pairs_line(lake, find(lake, "tried")).endswith("own texts are hardly nearer than wrong ones")
    decided = lake.query("SELECT count(*) FROM decisions WHERE dropped_by = ''")[0][0]
    assert decided == published.n_pairs == PICTURES


def test_a_threshold_by_canaries_rejects_wrong_texts_and_passes_all_with_few_canaries(
    planted: tuple[Lake, float], monkeypatch: pytest.MonkeyPatch
):
    lake, _ = planted
    asked = plan(images=[FITS | {"keep": "match_similarity >= {threshold}", "calibrate": {"wrong": 0.1}}])
    (check,) = (each for each in asked.image_checks if each.name == "fits")
    found = pair_fit.threshold_by_canaries(lake, asked, check)
    assert found is not None and WRONG < found.threshold <= GOOD and (found.n, found.n_dropped) == (2 * PICTURES, 0)
    monkeypatch.setattr(canaries, "CANARIES", pair_fit.FEWEST - 1)
    assert pair_fit.threshold_by_canaries(lake, asked, check) is None
    cut(lake, asked)
    assert lake.query("SELECT count(*) FROM cut_fates WHERE dropped_by = 'fits'") == [(0,)]
    estimate = pair_fit.wrong_pairs(lake, asked)
    assert estimate is not None and estimate.share is None and estimate.canaries == pair_fit.FEWEST - 1
    monkeypatch.undo()
    told = plan(candidates=[{"name": "near", "keep": "similarity >= 0.5"}])
    cut(lake, told)
    estimate = pair_fit.wrong_pairs(lake, told)  # of the own texts the lowest are withheld, of the canaries none
    assert estimate is not None and estimate.share is None and estimate.canaries == canaries.CANARIES
    monkeypatch.setattr(canaries, "CANARIES", pair_fit.FEWEST - 1)
    cut(lake, asked)
    published = publish(lake, asked, "run", None, lambda: 2)
    line = wrong_pairs_line(lake, find(lake, f"tried@{published.version}"))
    assert line.startswith("wrong pairs: cannot be told; it takes 50 deliberately wrong texts (there are 49), 50 pairs")


@pytest.mark.slow
def test_the_interval_of_wrong_pairs_covers_the_truth_in_made_worlds():
    """Normal and skew wrong texts; canaries of which none, a fifth or half describe their picture after all."""
    covered = []
    for seed in range(20):
        draw = np.random.default_rng(seed)
        n, m, apart = int(draw.choice([400, 1500])), int(draw.choice([150, 1000])), draw.uniform(1.8, 3.2)
        is_wrong, fits = draw.random(n) < draw.uniform(0.05, 0.5), draw.random(m) < draw.choice([0, 0.2, 0.5])
        wrong = draw.normal if seed % 2 else lambda low, high, k, draw=draw: draw.gumbel(low - 0.45, 0.78, k)
        own = np.where(is_wrong, wrong(0, 1, n), draw.normal(apart, 1, n))
        other = np.where(fits, draw.normal(apart, 1, m), wrong(0, 1, m))
        fitted = pair_fit.fit(own, other)
        assert fitted is not None
        for least in (own.min(), pair_fit.accepting(other, fitted.other, 0.1)):
            _, share, low, high = pair_fit.share_of_kept(own, least, other)
            assert low <= share <= high
            covered.append(low <= is_wrong[own >= least].mean() <= high)
    assert sum(covered) >= 36  # of 40


def test_the_exact_interval_is_that_of_the_tables():
    rate = canary_rate("r", 200, 40)  # scipy.stats.binomtest(40, 200).proportion_ci(): 0.1469, 0.2622
    assert (round(rate.low, 4), round(rate.high, 4)) == (0.1469, 0.2622)
    assert (canary_rate("r", 50, 0).low, canary_rate("r", 50, 50).high) == (0.0, 1.0)
