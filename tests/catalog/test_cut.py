"""The cut in SQL against the cut in lists, on random lakes."""

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.catalog.cut import early_cut, facts, facts_matches, facts_tables, keepers
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import image_funnel, publish, sentence_funnel
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import sentence_rows
from pairmill.catalog.queries.losses.rule_losses import heavy_losses
from pairmill.catalog.recipe.parts import RESERVED, Rule
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.score import Stage
from tests.catalog.test_facts import rotten
from tests.examples import examples
from tests.reference import cut as slow
from tests.worlds.random_lake import CAP, MAX_USES, RULES, SCORERS, SEED, TOP_K, fill, plan, refill, world
from tests.worlds.shared import opened_new

PUBLISHED = ("pairs", "decisions", "funnel", "dataset_captioners", "datasets")
RECIPES = st.tuples(st.sampled_from((CAP, 1, 2, 100)), st.sampled_from((MAX_USES, 1, 100)),
                    st.sampled_from((64, 0, 100, 1000)), st.sampled_from((10, 0, 60)),
                    st.sampled_from((1, TOP_K)))  # fmt: skip


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """A lake that holds one random world after the other."""
    with opened_new(tmp_path_factory.mktemp("several") / "lake") as lake:
        yield lake


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with opened_new(tmp_path_factory.mktemp("filled") / "lake") as lake:
        fill(lake, *world(2))
        yield lake


@pytest.fixture
def lake(filled: Lake) -> Iterator[Lake]:
    """The lake of world 2, of which nothing is published and no row is changed. Its facts are made once."""
    yield filled
    with filled.transaction():
        for table in PUBLISHED:
            filled.execute(f"DELETE FROM {table}")


@given(
    seed=st.integers(0, 2**32),
    at_once=st.sampled_from((1, 7, 1000)),
    recipes=st.lists(RECIPES, min_size=2, max_size=4, unique=True),
)
@examples(10)
def test_the_cut_equals_its_slow_twin(several: Lake, seed: int, at_once: int, recipes: list[tuple]):
    """Several recipes on one world: their cuts read the same facts."""
    images, words = world(seed)
    refill(several, images, words)
    with pytest.MonkeyPatch.context() as patched:
        for name in ("IMAGES_AT_ONCE", "PAIRS_AT_ONCE", "LIVE"):
            patched.setattr(f"pairmill.catalog.cut.texts.{name}", at_once)
        patched.setattr(early_cut, "IMAGES_AT_ONCE", at_once)
        patched.setattr(keepers, "KEEPERS_AT_ONCE", at_once)
        for module in (facts_matches, facts_tables):
            patched.setattr(module, "SORTED_AT_ONCE", 100)
        for recipe in recipes:
            agrees_with_its_slow_twin(several, images, words, *recipe)


def agrees_with_its_slow_twin(
    lake: Lake, images: list[slow.Image], words: dict, cap: int, max_uses: int, min_side: int, min_sharpness: int,
    at_least: int,
) -> None:  # fmt: skip
    made = plan(cap, max_uses, min_side, min_sharpness, at_least)
    cut(lake, made)
    decided = dict(lake.query("SELECT image_id, dropped_by FROM cut_images"))
    texts: dict[str, list[str]] = {}
    for image_id, content in lake.query("SELECT image_id, content FROM cut_texts ORDER BY image_id, place"):
        texts.setdefault(image_id, []).append(content)
    funnel = image_funnel(lake, made)
    dropped, expected = by_slow_twin(images, words, min_side, min_sharpness, cap, max_uses, at_least)
    assert decided == dropped
    assert texts == expected
    counted = Counter(dropped.values())
    assert [(rule, n) for rule, _, n in funnel] == [(rule, counted[rule]) for rule, _, _ in funnel]
    assert funnel[-1][1] - funnel[-1][2] == counted[""]


def by_slow_twin(
    images: list[slow.Image], words: dict, side: int = 64, sharpness: float = 10, cap: int = CAP, uses: int = MAX_USES,
    at_least: int = 1,
) -> tuple[dict[str, str], dict[str, list[str]]]:  # fmt: skip
    good = {name for name, (n, repeats) in words.items() if n >= 3 and repeats <= 2 and name != "s24"}
    images = [image if image.group <= "p60" else replace(image, group=image.sha256) for image in images]
    return slow.cut(images, good, side, sharpness, cap, TOP_K, uses, SEED, at_least=at_least)


def elsewhere(images: list[slow.Image]) -> list[slow.Image]:
    """The same pictures in other places: a folder of another name gives other ids, in another order."""
    names = [image.image_id for image in images]
    return [replace(image, image_id=f"j{name}") for image, name in zip(images, reversed(names), strict=True)]


@given(seed=st.integers(0, 2**32))
@examples(100)
def test_the_slow_twin_cuts_the_same_pictures_in_other_places_the_same(seed: int):
    """What equals it does so too: the cut in SQL, whatever the ids."""
    images, words = world(seed)
    cuts = []
    for shown in (images, elsewhere(images)):
        dropped, texts = by_slow_twin(shown, words)
        places = ((i.sha256, i.position, i.alt_text, dropped[i.image_id], texts.get(i.image_id)) for i in shown)
        cuts.append(sorted(places, key=str))
    assert cuts[0] == cuts[1]


def test_the_same_pictures_in_other_places_are_cut_the_same(several: Lake):
    images, words = world(11)
    cuts = []
    for shown in (images, elsewhere(images)):
        refill(several, shown, words)
        cut(several, plan())
        decided = "SELECT sha256, dropped_by, position, alt_text FROM cut_images JOIN images USING (image_id, sha256)"
        texts = "SELECT sha256, place, content FROM cut_texts JOIN images USING (image_id)"
        cuts.append((sorted(several.query(decided)), sorted(several.query(texts))))
    assert cuts[0] == cuts[1] and all(cuts[0])


def test_duplicate_groups_are_told_that_are_lost_because_a_later_rule_drops_their_best_picture(lake: Lake):
    cut(lake, plan())
    decided = {image: fate for image, *fate in lake.query("SELECT image_id, dropped_by, dropped_value FROM cut_images")}
    best = {better for rule, better in decided.values() if rule == "duplicate"}
    lost = Counter(rule for rule, _ in map(decided.__getitem__, best) if rule not in ("", "balance"))
    by_rule = ", ".join(f"{rule} {n}" for rule, n in sorted(lost.items(), key=lambda each: (-each[1], each[0])))
    assert lost and heavy_losses(lake, plan(), [], 1) == [
        f"{lost.total()} of {len(best)} duplicate groups are lost whole: a later rule drops the "
        f"picture that stands for the group ({by_rule})."
    ]


def test_no_sentence_is_used_more_often_than_allowed_and_no_cluster_over_its_cap(lake: Lake):
    cut(lake, plan())
    uses = lake.query("SELECT max(n) FROM (SELECT count(*) AS n FROM cut_texts GROUP BY content)")
    sizes = lake.query(
        "SELECT max(n) FROM (SELECT count(*) AS n FROM cut_images "
        "WHERE dropped_by IN ('', 'no_text') AND cluster IS NOT NULL GROUP BY cluster)"
    )
    assert uses[0][0] <= MAX_USES
    assert sizes[0][0] <= CAP


def test_pictures_with_too_few_sentences_are_dropped_before_the_cap_and_after_the_limit_of_uses(lake: Lake):
    counts = (
        "SELECT count(*) FILTER (dropped_by = 'no_text'), count(*) FILTER (dropped_by = 'max_uses') FROM cut_images"
    )
    sizes = "SELECT DISTINCT count(*) AS n FROM cut_texts GROUP BY image_id ORDER BY n"
    cut(lake, plan(100, max_uses=1))
    (few, _), some = lake.query(counts)[0], lake.query(sizes)
    cut(lake, plan(100, max_uses=1, at_least=TOP_K))
    (fewer, used_up), all_of_them = lake.query(counts)[0], lake.query(sizes)
    assert fewer > few and used_up > 0
    assert (1,) in some and all_of_them == [(TOP_K,)]


def test_publishing_the_same_pairs_again_writes_nothing(lake: Lake):
    cut(lake, plan())
    first = publish(lake, plan(), "run1", 1.0, lambda: 2)
    cut(lake, plan())
    second = publish(lake, plan(), "run2", 1.0, lambda: pytest.fail("no commit number is taken"))
    versions = lake.query("SELECT version, n_pairs, content_digest FROM datasets")
    decided = lake.query("SELECT count(*) FROM decisions WHERE dropped_by IS NULL")
    assert (first.version, first.is_new, second.version, second.is_new) == (1, True, 1, False)
    assert versions == [(1, first.n_pairs, first.content_digest)]
    assert decided == [(0,)]


SETTINGS = {
    "another rule of the same effect": {"sentences": [{"name": "length", "keep": "n_words > 2"}, *RULES[1:]]},
    "a rule by another name": {"sentences": [{"name": "n", "keep": "n_words >= 3"}, *RULES[1:]]},
    "another seed, where no cluster is full": {"seed": 6},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_another_recipe_is_another_version_though_its_pairs_are_the_same(lake: Lake, settings: dict):
    one = plan(1000)
    other = compile_plan(Recipe.model_validate(one.recipe.model_dump(mode="json") | settings), SCORERS)
    cut(lake, one)
    first = publish(lake, one, "run1", 1.0, lambda: 2)
    cut(lake, other)
    second = publish(lake, other, "run2", 1.0, lambda: 3)
    recipes = [json.loads(text) for (text,) in lake.query("SELECT recipe FROM datasets ORDER BY version")]
    funnel = "SELECT rule FROM funnel WHERE version = 2 AND kind = 'sentence' ORDER BY position"
    rules = {rule for (rule,) in lake.query(funnel)}
    assert (first.content_digest, second.version, second.is_new) == (second.content_digest, 2, True)
    assert recipes == [one.recipe.model_dump(mode="json"), other.recipe.model_dump(mode="json")]
    assert rules == {"same_text", *(rule.name for rule in other.recipe.sentences)}


def test_no_pairs_by_two_recipes_are_two_versions_each_with_its_own_reasons(lake: Lake):
    nothing = {"images": [{"name": "large", "keep": "least(width, height) >= 999999"}]}, {"sentences": [
        {"name": "length", "keep": "n_words between 81 and 3"}]}  # fmt: skip
    dropped = []
    for version, settings in enumerate(nothing, 1):
        recipe = Recipe.model_validate(plan().recipe.model_dump(mode="json") | settings)
        cut(lake, compile_plan(recipe, SCORERS))
        found = publish(lake, compile_plan(recipe, SCORERS), f"run{version}", 1.0, lambda version=version: version)
        assert (found.version, found.n_pairs, found.is_new) == (version, 0, True)
        dropped.append({rule for (rule,) in lake.query(
            "SELECT DISTINCT dropped_by FROM decisions WHERE version = ?", (version,))})  # fmt: skip
    assert dropped[0] == {"large"} and "large" not in dropped[1] and "no_text" in dropped[1]


def test_a_recipe_that_differs_in_placement_alone_is_no_other_version(lake: Lake):
    elsewhere = Recipe.model_validate(
        plan().recipe.model_dump(mode="json") | {"sources": ["elsewhere"], "clip": {"batch_size": 1}}
    )
    cut(lake, plan())
    publish(lake, plan(), "run1", 1.0, lambda: 2)
    # As an older Pairmill wrote it, that did not know all of today's settings.
    lake.execute("UPDATE datasets SET recipe = CAST(json_merge_patch(recipe, '{\"decoding\": null}') AS VARCHAR)")
    cut(lake, compile_plan(elsewhere, SCORERS))
    again = publish(lake, compile_plan(elsewhere, SCORERS), "run2", 1.0, lambda: pytest.fail("nothing is begun"))
    assert (again.version, again.is_new) == (1, False)


@pytest.mark.slow
def test_a_picture_that_adds_no_pair_has_its_decision_at_once(tmp_path: Path):
    images, words = world(2)
    with opened_new(tmp_path / "lake") as lake:
        fill(lake, images, words)
        cut(lake, plan())
        first = publish(lake, plan(), "run1", 1.0, lambda: 2)
        size = pa.array([8], pa.int32())
        late = {"image_id": ["late"], "sha256": ["late"], "width": size, "height": size, "n_bytes": [10], "commit": [3]}
        lake.insert("images", pa.table(late))
        lake.insert("image_content", pa.table({"sha256": ["late"], "commit": [3]}))
        cut(lake, plan())
        second = publish(lake, plan(), "run2", 1.0, lambda: 4)
        decided = lake.query("SELECT version, dropped_by FROM decisions WHERE item_id = 'late'")
    assert (second.version, second.content_digest) == (2, first.content_digest)
    assert decided == [(2, "short_side")]


@pytest.mark.slow
def test_the_same_decisions_by_another_scorer_are_another_version(tmp_path: Path):
    images, words = world(2)
    with opened_new(tmp_path / "lake") as lake:
        fill(lake, images, words)
        cut(lake, plan())
        publish(lake, plan(), "run1", 1.0, lambda: 2)
        lake.execute("UPDATE image_quality SET scorer = 'q2'")
        mended = plan().with_scorer("image_quality", "q2")
        cut(lake, mended)
        assert publish(lake, mended, "run2", 1.0, lambda: 3).version == 2
        assert lake.query("SELECT list_contains(scorers, 'q2') FROM datasets ORDER BY version") == [(False,), (True,)]


def test_the_funnel_of_sentences_counts_what_the_joined_scores_of_all_sentences_say(tmp_path: Path):
    images, words = world(2)
    ruled = sentence_rows(plan(), Stage.CAPTION)
    joined = f"SELECT dropped_by, count(*) FROM ({ruled}) WHERE dropped_by <> '' GROUP BY 1"
    with opened_new(tmp_path / "lake") as lake:
        fill(lake, images, words)
        first, *of_rules = sentence_funnel(lake, plan())
        assert {rule: n for rule, _, n in of_rules if n} == dict(lake.query(joined)) != {}
        lake.insert("sentences", pa.table({"sentence_id": ["new"], "content": ["s00"], "commit": [30]}))
        assert sentence_funnel(lake, plan())[0] == ("same_text", first[1] + 1, first[2] + 1)


IMAGES, ALL_STEPS = ["_drop_copies"], ["best_sentences", "_drop_copies"]


@pytest.fixture
def by(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> Callable[[Plan], tuple[list[str], list[tuple]]]:
    """A function that cuts by a plan and returns the early steps that were made, and all decisions and texts."""
    made: list[str] = []
    for step in ALL_STEPS:
        run = getattr(early_cut, step)
        monkeypatch.setattr(early_cut, step, lambda *given, step=step, run=run: made.append(step) or run(*given))

    def by(asked: Plan) -> tuple[list[str], list[tuple]]:
        made.clear()
        cut(lake, asked)
        found = lake.query("SELECT * FROM cut_images ORDER BY n") + lake.query("SELECT * FROM cut_texts ORDER BY ALL")
        return made.copy(), found

    return by


def test_another_process_reads_the_early_steps_of_a_cut_from_their_file_unless_it_is_damaged(lake, by, monkeypatch):
    def elsewhere(asked: Plan) -> tuple[list[str], list[tuple]]:
        lake.execute("DELETE FROM temp.cut_asked")
        return by(asked)

    cut(lake, plan())
    asked = [plan(cap=1), plan(max_uses=1), plan(min_side=100)]
    expected = [elsewhere(each)[1] for each in asked]
    monkeypatch.setattr(facts, "EXTENDED", 0)
    folder = Path(lake.uri) / ".facts"
    assert not [*folder.glob("early-*")]
    assert elsewhere(plan())[0] == ALL_STEPS
    (early,) = folder.glob("early-*")
    assert [elsewhere(each) for each in asked] == [*zip(([], [], IMAGES), expected, strict=True)]
    assert elsewhere(plan(at_least=2))[0] == ALL_STEPS
    assert {*folder.glob("early-*")} > {early}
    rotten(early)
    assert elsewhere(asked[0]) == (ALL_STEPS, expected[0])
    assert elsewhere(asked[0]) == ([], expected[0])
    monkeypatch.setattr(early_cut, "_CODE", "other steps")
    assert elsewhere(asked[0]) == (ALL_STEPS, expected[0])


def test_a_cut_makes_anew_what_the_last_one_did_not_ask_for_and_decides_as_the_first_one_would(lake: Lake, by):
    def anew(asked: Plan) -> list[tuple]:
        lake.execute("DELETE FROM temp.cut_asked")
        return by(asked)[1]

    by(plan(cap=100))
    kept = lake.query("SELECT sha256 FROM cut_images WHERE dropped_by = '' ORDER BY sha256")[0][0]
    spared = "sha256 IN (SELECT sha256 FROM temp.acts_kept)"
    lake.execute("CREATE OR REPLACE TEMP TABLE acts_kept (sha256 VARCHAR)")
    fewer = plan(min_side=100, at_least=2)
    asked = [plan(), plan(max_uses=1), plan(at_least=2), fewer, fewer.sparing(spared)]
    found = [by(each) for each in asked]
    lake.execute("INSERT INTO temp.acts_kept SELECT sha256 FROM facts.images WHERE width < 64")
    found.append(by(asked[-1]))
    with lake.transaction():
        leave_out = "SELECT 'a' AS act_id, 'leave_out' AS act, 'small' AS dataset, ? AS sha256, 1 AS \"commit\""
        lake.execute(f"INSERT INTO acts BY NAME {leave_out}", (kept,))
    found.append(by(asked[-1]))
    asked.append(replace(asked[-1], sentence_checks=asked[-1].sentence_checks[1:]))
    found.append(by(asked[-1]))
    assert [steps for steps, _ in found] == [[], [], ALL_STEPS, IMAGES, IMAGES, IMAGES, IMAGES, ALL_STEPS]
    assert [anew(each) for each in asked[-2:]] == [fates for _, fates in found[-2:]]
    assert all(one != other for (_, one), (_, other) in pairwise(found[4:]))
    lake.execute("DELETE FROM acts")
    assert [anew(each) for each in asked[:4]] == [fates for _, fates in found[:4]]


def test_a_cut_of_other_rows_by_the_same_recipe_selects_survivors_anew(several: Lake):
    for seed in (1, 2):
        refill(several, *world(seed))
        agrees_with_its_slow_twin(several, *world(seed), CAP, MAX_USES, 64, 10, 1)


def test_no_rule_may_bear_a_name_that_the_cut_itself_writes_into_the_funnel(lake: Lake):
    cut(lake, plan())
    lake.execute(
        "INSERT INTO acts BY NAME SELECT 'a' AS act_id, 'leave_out' AS act, ? AS dataset, sha256, 1 AS \"commit\" "
        "FROM images WHERE image_id IN (SELECT image_id FROM cut_images WHERE dropped_by = '')",
        (plan().recipe.name,),
    )
    cut(lake, plan())
    written = {rule for rule, _, _ in (*image_funnel(lake, plan()), *sentence_funnel(lake, plan()))}
    own = written - {rule.name for rule in (*plan().recipe.images, *plan().recipe.sentences)}
    assert own == RESERVED
    for name in own:
        with pytest.raises(ValueError, match=f"'{name}' names a step of the cut itself"):
            Rule(name=name, keep="true")
