import json
import re
from pathlib import Path

import pytest
import yaml
from prefect.utilities.callables import parameter_schema

from pairmill.catalog.recipe.parts import Balance, Duplicates
from pairmill.catalog.recipe.recipe import Recipe, apply_overrides, load
from pairmill.catalog.recipe.rule_packs import pack_overrides
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
        ("captions.choose", "worst", "'captions.choose': .*'first', 'best' or 'mixture'"),
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


def test_a_choice_among_captioners_and_no_placement_is_part_of_the_identity(small: Path) -> None:
    recipe = load(small, {"captioners": "[{name: a}, {name: b, prompt: What, batch_size: 3}]"})
    for others in ({"captions.choose": "best"}, {"captions": "{choose: mixture}"}):
        other = apply_overrides(recipe, others)
        assert other.digest() != recipe.digest() and Recipe.model_validate(other.record()) == other
        assert apply_overrides(other, {"captions.choose": "first"}).digest() == recipe.digest()
        assert apply_overrides(other, {"captioners.a.batch_size": "9"}).digest() == other.digest()


def test_a_recipe_may_have_no_cap_and_one_without_a_balance_section_has_the_usual(small: Path) -> None:
    plain, free = load(small), load(small, {"balance.cap": "none"})
    assert (plain.balance.cap, free.balance.cap) == (35, None)
    assert free.record()["balance"]["cap"] == "none" and free.digest() != plain.digest()
    assert Balance.model_validate(free.record()["balance"]) == free.balance
    assert (
        apply_overrides(free, {"balance.cap": "null"}) == plain
        and apply_overrides(free, {"balance.cap": "9"}).balance.cap == 9
    )


def test_a_setting_at_its_default_is_no_part_of_the_identity(small: Path) -> None:
    """So a setting that a later version adds leaves the digests of all recipes without it as they were."""
    recipe = load(small)

    class Later(Duplicates):
        new: int = 7

    class LaterRecipe(Recipe):
        duplicates: Later = Later()
        newest: str | None = None

    assert LaterRecipe.model_validate(recipe.record()).digest() == recipe.digest()
    assert LaterRecipe.model_validate(recipe.record() | {"duplicates": {"new": 8}}).digest() != recipe.digest()
    written = {"balance": "{cap: 35}", "duplicates.per_cluster": "40", "association.recall": "null"}
    assert load(small, written).digest() == recipe.digest()
    for key, value in (("duplicates.clusters", "9"), ("association.per_cluster", "40"), ("association.recall", "0.9")):
        assert load(small, {key: value}).digest() != recipe.digest()


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


def test_a_rule_that_is_not_there_is_added_and_a_pack_adds_several(small: Path):
    (small.parent / "own.yaml").write_text(
        'images:\n- {name: wide, keep: "width > 500"}\n- {name: sharp, keep: "true"}\n'
    )
    packed = pack_overrides(["web-clean", str(small.parent / "own.yaml")], FOLDER / "packs")
    found = load(small, packed | {"images.bright.keep": "brightness > 0.2"})
    rules = {rule.name: rule.keep for rule in found.images}
    assert (rules["wide"], rules["sharp"], rules["bright"]) == ("width > 500", "true", "brightness > 0.2")
    assert rules["not_blank"] and {"words", "plain"} <= {rule.name for rule in found.sentences}


def test_a_rule_of_a_pack_takes_the_whole_place_of_the_recipes_rule_of_that_name(tmp_path: Path):
    (tmp_path / "pack.yaml").write_text("images:\n- {name: fits, keep: match_similarity >= 0.2}\n")
    (rule,) = (each for each in load("folder", pack_overrides([str(tmp_path / "pack.yaml")], FOLDER), FOLDER).images
               if each.name == "fits")  # fmt: skip
    assert (rule.keep, rule.calibrate, rule.scorers) == ("match_similarity >= 0.2", None, None)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("images:\n- {name: a, keep: 'true'}\n- {name: a, keep: 'false'}\n", "there are two rules 'a'"),
        ("images:\n- {name: a, keeps: 'true'}\n", "'images.a.keep': it is missing"),
        ("images: width > 3\n", "'images': 'width > 3' is not a list"),
        ("- a\n", "is not a group of settings"),
        ("images: [a\n", "cannot be read as YAML"),
    ],
)
def test_a_pack_that_is_not_fit_is_refused_in_one_line(tmp_path: Path, text: str, said: str):
    (tmp_path / "pack.yaml").write_text(text)
    with pytest.raises(BadRecipe, match=re.escape(said)) as refused:
        pack_overrides([str(tmp_path / "pack.yaml")], tmp_path)
    assert "\n" not in str(refused.value).strip()
