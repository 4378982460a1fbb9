import json
from decimal import Decimal
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from prefect.utilities.callables import parameter_schema

from pairmill.catalog.recipe.parts import Duplicates
from pairmill.catalog.recipe.parts_of_balance import Balance
from pairmill.catalog.recipe.recipe import Recipe, changed, load
from pairmill.catalog.terms.error import BadRecipe

FOLDER = Path(__file__).parents[2] / "flows" / "recipes"
SMALL = {
    "name": "small",
    "models": {"clip": "open_clip:local-dir:m/clip", "captioner": "hf:m/vlm"},
    "images": [
        {"name": "short_side", "keep": "least(width, height) >= 100"},
        {"name": "sharp", "keep": "sharpness > 3"},
    ],
    "captioners": [{"name": "main"}],
}


@pytest.fixture
def small(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(yaml.safe_dump(SMALL))
    return tmp_path / "small.yaml"


def test_the_shipped_recipes_load_and_hold_realsyns_figures() -> None:
    caps = {}
    for file in sorted(FOLDER.glob("*.yaml")):
        recipe = load(file.stem, folder=FOLDER)
        assert recipe.name == file.stem and recipe == load(file)
        caps[recipe.name] = recipe.balance.cap
    assert {name: caps[name] for name in ("15m", "30m", "100m")} == {"15m": 20, "30m": 35, "100m": 180}
    big = load("30m", folder=FOLDER)
    assert (big.association.clusters, big.balance.clusters, big.association.top_k) == (2_000_000, 1_000_000, 3)
    assert (big.association.per_cluster, big.balance.per_cluster, big.duplicates.per_cluster) == (580, 198, 40)
    assert big.images[0].keep == "least(width, height) >= 100" and big.sentences[0].keep == "n_words between 3 and 81"


def test_overrides_reach_every_depth_and_rules_by_name(small: Path) -> None:
    recipe = load(
        small,
        {
            "association.top_k": "2",
            "images.sharp.keep": "sharpness > 5",
            "seed": "7",
            "images.0.name": "side",
            "sources": "[a, b]",
            "tags.vocabulary": "[cat, dog]",
            "models.other": "hf:x/y",
        },
    )
    assert (recipe.association.top_k, recipe.seed, recipe.sources) == (2, 7, ["a", "b"])
    assert [(rule.name, rule.keep) for rule in recipe.images][1] == ("sharp", "sharpness > 5")
    assert recipe.images[0].name == "side" and recipe.tags is not None and recipe.tags.vocabulary == ["cat", "dog"]
    assert recipe.models["other"] == "hf:x/y" and recipe.models["clip"] == "open_clip:local-dir:m/clip"


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "association.topk",
            "3",
            "recipe 'small', 'association.topk': there is no such setting; did you mean 'top_k'?",
        ),
        ("balnace.cap", "3", "'balnace': there is no such setting; did you mean 'balance'?"),
        ("fuse.promt", "x", "'fuse.promt': there is no such setting; did you mean 'prompt'?"),
        ("captioners.main.max_token", "3", "'captioners.main.max_token': .* did you mean 'max_tokens'?"),
        ("images.sharpp.keep", "true", "--set images.sharpp.keep: there is no 'sharpp'; did you mean 'sharp'?"),
        ("images.9.keep", "true", "there is no '9'; there are short_side, sharp"),
        ("images.sharp", "0.3", "'sharp' has several settings; name one, such as images.sharp.keep."),
        ("name.first", "x", "--set name.first: 'name' holds one value"),
        ("name.first.second", "x", "there is nothing below 'first'"),
        ("seed", "[", "--set seed: .* is not a YAML value"),
        ("balance.cap", "many", "'balance.cap': 'many' is not a whole number; write one, such as 20"),
        ("balance.cap", "1.5", "'balance.cap': 1.5 is not a whole number; write one, such as 20"),
        ("duplicates.cosine", "2", "'duplicates.cosine': 2 is too large; write at most 1"),
        ("captions.choose", "wrst", "'captions.choose': 'wrst' is not a choice; write 'first', 'best' or 'mixture'"),
        ("images", "3", r"'images': 3 is not a list; write \[first, second\]"),
        ("fuse.model", "null", "'fuse.model': an empty value is not a text"),
        ("balance.cap", "0", "'balance.cap': 0 is too small; write 1 or more"),
        ("models", "{}", "the cut needs the model 'clip'|captioner 'main' needs the model 'captioner'"),
        ("models.clip", "ViT-B-32", "'models.clip': 'ViT-B-32' names no model; write open_clip:MODEL/PRETRAINED"),
        ("images.sharp.keep", "getenv('x') = 'y'", r"'images.sharp': rule 'sharp': it calls getenv\(\)"),
        ("images.sharp.keep", "(SELECT true)", "rule 'sharp': it holds a subquery"),
        ("images.sharp.keep", "true", None),
        ("images.sharp.name", "short_side", "two have the name 'short_side'"),
        ("balance.target", "0", "'balance.target': 0 is too small; write 1 or more"),
        ("balance.target", "1.0005k", "'balance.target': '1.0005k' is no whole number; write one, such as 30M"),
        ("balance.target", "30 millions", "'balance.target': '30 millions' is no whole number; write one, such as 30M"),
        ("balance", "{cap: 35, target: 30M}", "'balance': `cap` and `target` both .*; leave one of them out"),
        ("balance.per_cluster", "0", "'balance.per_cluster': 0 is too small; write 1 or more"),
        ("images.sharp.name", "balance", "'balance' names a step of the cut itself"),
        ("sentences", "[{name: same_text, keep: 'true'}]", "'same_text' names a step of the cut itself"),
        ("images.sharp.name", "Sharp!", "'images.Sharp!.name': "),
        ("captioners", "[]", None),
        ("fuse.prompt", "'{foo}'", "may hold {caption}, {tags} and {sentence}"),
        ("fuse.prompt", "'{caption'", "'fuse.prompt': "),
        ("fuse.prompt", "'{caption!r:>9}'", "may hold {caption}, {tags} and {sentence}"),
        ("tags.vocabulary", "[]", "'tags.vocabulary': holds no words"),
        ("tags.vocabulary", "[cat, dog, cat]", "'tags.vocabulary': holds cat more than once"),
        ("tags.template", "'a photo'", "'tags.template': needs one {} where the word goes"),
        ("tags", "{vocabulary: [cat], strict: 0.5}", "needs words to tell apart"),
        ("tags.strict", "1", "'tags.strict'"),
        ("tags.mined", "-1", "'tags.mined'"),
        ("duplicates.cosine", "1.5", "'duplicates.cosine': "),
        ("captions.choose", "best", "`captions.choose: best` chooses among captioners, and `captioners` has 1; add an"),
        ("captions", "{choose: mixture}", r"`captions.choose: mixture` chooses among .* or leave `captions` out"),
        ("captions", "{choose: best, ask: every}", "`choose: best` asks every captioner anyway; leave `ask` out"),
        ("captions.choose", "worst", "'captions.choose': .*'first', 'best' or 'mixture'"),
        (
            "captioners.main.weight",
            "2",
            "'main' has a weight, .* write `captions: {choose: mixture}`, or leave the weight",
        ),
        ("captioners.main.weight", "-1", "'captioners.main.weight': -1 is too small; write 0 or more"),
        ("captioners", "[{name: a}, {name: a}]", "two have the name 'a'; a name stands for one"),
    ],
)
def test_what_is_wrong_is_told_with_the_place_and_the_remedy(
    small: Path, key: str, value: str, message: str | None
) -> None:
    if message is None:
        load(small, {key: value})
        return
    with pytest.raises(BadRecipe, match=message):
        load(small, {key: value})


def test_a_mixture_of_which_nobody_can_be_drawn_is_refused(small: Path) -> None:
    captioners = "[{name: a, weight: 0}, {name: b, weight: 0}]"
    with pytest.raises(BadRecipe, match=r"the weights of all captioners are 0, .*; give one a weight above 0"):
        load(small, {"captioners": captioners, "captions.choose": "mixture"})


def test_a_recipe_that_chooses_the_first_captioner_is_what_it_was_before_one_could_choose(small: Path) -> None:
    recipe = load(small, {"captioners": "[{name: a}, {name: b, prompt: What, batch_size: 3}]"})
    assert recipe.digest() == "d30ac2629aa6e3f965242f8c6fd447ef"
    assert "captions" not in recipe.record() and "weight" not in recipe.record()["captioners"][0]
    for others in ({"captions.choose": "best"}, {"captions": "{choose: mixture}"}):
        other = changed(recipe, others)
        assert other.digest() != recipe.digest() and Recipe.model_validate(other.record()) == other
        assert changed(other, {"captions.choose": "first"}).digest() == recipe.digest()
    mixed = changed(recipe, {"captions.choose": "mixture"})
    assert changed(mixed, {"captioners.a.batch_size": "9"}).digest() == mixed.digest()
    assert changed(mixed, {"captioners.a.weight": "3"}).digest() != mixed.digest()


@given(n=st.integers(1, 10**6), digits=st.integers(0, 9), suffix=st.sampled_from(("", "k", "K", "m", "M", "b", "B")))
def test_a_target_is_read_as_people_write_large_numbers(n: int, digits: int, suffix: str) -> None:
    """n x 10^-digits of a suffix's thousands, millions or billions, refused if not whole or over 10^12."""
    written = f"{Decimal(n).scaleb(-digits):f}{suffix}"
    of = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9}[suffix.lower()] * n
    if of % 10**digits == 0 and of // 10**digits <= 10**12:
        assert Balance.model_validate({"target": written}).target == of // 10**digits
    else:
        with pytest.raises(
            ValueError, match=r"is no whole number; write one, such as 30M|less than or equal to 10{12}"
        ):
            Balance.model_validate({"target": written})


@given(target=st.integers(1, 10**12), cap=st.integers(1, 10**6))
def test_balance_has_a_cap_or_a_target_and_a_cap_where_it_is_told_neither(target: int, cap: int) -> None:
    assert (Balance.model_validate({}).cap, Balance.model_validate({"cap": None}).target) == (35, None)
    for given_, has in (({"cap": cap}, (cap, None)), ({"target": target}, (None, target))):
        balance = Balance.model_validate(given_)
        assert (balance.cap, balance.target) == has
        assert Balance.model_validate_json(balance.model_dump_json()) == balance


def test_a_recipe_may_have_no_cap_and_one_without_a_balance_section_keeps_its_own(small: Path) -> None:
    plain, free = load(small), load(small, {"balance.cap": "none"})
    assert (plain.balance.cap, plain.balance.is_on, free.balance.is_on) == (35, True, False)
    assert free.record()["balance"]["cap"] == "none" and free.digest() != plain.digest()
    assert Balance.model_validate(free.record()["balance"]) == free.balance
    assert changed(free, {"balance.target": "9"}).balance.target == changed(free, {"balance.cap": "9"}).balance.cap == 9


def test_a_target_replaces_the_cap_of_the_recipe_that_it_is_set_on(small: Path) -> None:
    capped = small.with_name("capped.yaml")
    capped.write_text(yaml.safe_dump(SMALL | {"balance": {"cap": 20}}))
    asked = load(capped, {"balance.target": "1.2M"}).balance
    assert (asked.cap, asked.target) == (None, 1_200_000)
    back = changed(load(capped, {"balance.target": "1.2M"}), {"balance.cap": "7"}).balance
    assert (back.cap, back.target) == (7, None)
    assert load(capped, {"balance.target": "null"}).balance.cap == 20
    with pytest.raises(BadRecipe, match="`cap` and `target` both"):
        load(capped, {"balance.target": "1.2M", "balance.cap": "7"})


def test_what_came_later_and_is_not_used_leaves_records_and_digests_as_they_were(small: Path) -> None:
    recipe = load(small)
    assert recipe.record()["duplicates"].keys() == {"phash", "cosine", "max_group", "probes"}
    assert recipe.record()["balance"] == {"clusters": 1_000_000, "per_cluster": 168, "cap": 35}
    assert Duplicates.model_validate({"clusters": 9, "per_cluster": 50}).model_dump().items() >= {
        ("clusters", 9), ("per_cluster", 50)
    }  # fmt: skip
    digest = recipe.digest()
    assert load(small, {"balance": "{cap: 35, target: null}", "duplicates.per_cluster": "40"}).digest() == digest
    for key, value in (("balance.target", "35"), ("duplicates.clusters", "9"), ("association.per_cluster", "40")):
        assert load(small, {key: value}).digest() != digest


def test_a_fusion_without_a_captioner_is_refused(small: Path) -> None:
    with pytest.raises(BadRecipe, match=r"`fuse` needs a captioner"):
        load(small, {"fuse": "{}", "captioners": "[]"})


def test_all_mistakes_are_told_at_once(small: Path) -> None:
    with pytest.raises(BadRecipe) as caught:
        load(small, {"sede": "1", "balance.cap": "-1"})
    assert "sede" in str(caught.value) and "balance.cap" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "begins with `name: ...`"),
        ("- a", "begins with `name"),
        ("a: [", "cannot be read as YAML"),
        ("a: b", "'name': it is missing"),
    ],
)
def test_a_file_that_is_no_recipe_is_told_so(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.yaml").write_text(text)
    with pytest.raises(BadRecipe, match=message):
        load(tmp_path / "x.yaml")


def test_a_recipe_that_is_not_there_is_met_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(BadRecipe, match=r"there is no recipe 'demoo'; did you mean 'demo'?"):
        load("demoo", folder=FOLDER)
    with pytest.raises(BadRecipe, match=r"there is no recipe 'zzzz'; there are .*100m"):
        load("zzzz", folder=FOLDER)
    with pytest.raises(BadRecipe, match=r"no such file"):
        load(tmp_path / "gone.yaml")


def test_the_digest_is_of_what_the_dataset_is_and_not_of_where_and_how_fast(small: Path) -> None:
    digest = load(small).digest()
    assert len(digest) == 32 and digest == load(small).digest()
    for key, value in (("sources", "[x]"), ("clip.batch_size", "3"), ("captioners.main.batch_size", "3")):
        assert load(small, {key: value}).digest() == digest
    scored = load(small, {"scores.perplexity": "{precision: bf16}"}).digest()
    assert load(small, {"scores.perplexity": "{precision: bf16, batch_size: 3}"}).digest() == scored != digest
    for key, value in (
        ("seed", "1"),
        ("images.sharp.keep", "sharpness > 4"),
        ("clip.precision", "bf16"),
        ("balance.cap", "9"),
    ):
        assert load(small, {key: value}).digest() != digest


def test_a_recipe_goes_through_json_and_back(small: Path) -> None:
    recipe = load(small)
    assert Recipe.model_validate(json.loads(recipe.model_dump_json())) == recipe


def test_prefect_draws_a_form_of_it_in_which_every_field_is_explained() -> None:
    def flow(recipe: Recipe) -> None: ...

    schema = parameter_schema(flow)
    parts = schema.definitions
    assert {"Recipe", "Rule", "Association", "Balance", "Captioner", "Tags", "Fuse", "Ingest"} <= parts.keys()
    for name, part in parts.items():
        for field, told in part["properties"].items():
            linked = "$ref" in told or "allOf" in told  # a part that explains itself
            assert told.get("description") or linked, f"{name}.{field}"
    json.dumps(parts)
