"""Fusion by a language model that reads the texts alone, beside fusion by one that is shown the picture."""

from pathlib import Path

import pytest

from pairmill.catalog.recipe.parts_of_texts import FUSE_PROMPT
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.controls import printable
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.backends import LanguageModel, VisionLanguageModel
from pairmill.ops.models.model_digest import ModelError, model_digest
from pairmill.ops.pair import fuse
from pairmill.ops.text import generation_status
from pairmill.tasks.run.place import identity
from tests.worlds.line import rows, run_part, texts, work_done
from tests.worlds.model_answers import generate_texts
from tests.worlds.shared import made_once
from tests.worlds.tiny_chat import save_chat_model

FUSED = "SELECT sha256, prompt, synthetic_text, synthetic_status, n_tokens, scorer FROM synthetic ORDER BY sha256"


@pytest.fixture(scope="module")
def by_text(settings: dict[str, str]) -> dict[str, str]:
    writer = made_once("writer", save_chat_model)
    return settings | {"models.writer": f"hf:{writer}", "fuse.model": "writer", "fuse.max_tokens": "6"}


def payload_files(lake: Path) -> list[Path]:
    paths = rows(lake, "SELECT path FROM partitions WHERE \"table\" = 'payloads' AND path <> ''")
    (folder,) = {file.parent for file in lake.rglob("*.parquet") if file.name == Path(paths[0][0]).name}
    return [folder / Path(path).name for (path,) in paths]


@pytest.mark.slow
def test_a_model_of_texts_alone_fuses_without_the_pictures(
    curated_copy: Path, by_text: dict[str, str], settings: dict[str, str]
):
    seen = {row[0]: row for row in rows(curated_copy, FUSED)}
    files = payload_files(curated_copy)
    kept = [(file, file.read_bytes()) for file in files]
    for file in files:
        file.unlink()
    published, counts = run_part(curated_copy, texts, by_text)
    assert set(work_done(counts)) == {"fuse", "score fused texts"} and published.version == 2
    told = {row[0]: row for row in rows(curated_copy, FUSED) if row[0] in seen and row[5] != seen[row[0]][5]}
    assert len(told) == len(seen) > 10
    model = LanguageModel(by_text["models.writer"])
    for sha, prompt, text, _, n_tokens, _ in list(told.values())[:5]:
        assert prompt == seen[sha][1], "both are asked the same"
        (alone,) = generate_texts(model, [prompt], 6)
        assert (n_tokens, text) == (alone.n_tokens, printable(alone.text))
    assert len({row[2] for row in told.values()}) > 3
    assert not rows(curated_copy, "SELECT * FROM quarantine WHERE stage = 'fuse'")
    # The picture is shown again by the other way: these answers are there already, at another side they are not.
    again, _ = run_part(curated_copy, texts, settings)
    assert again.content_digest == rows(curated_copy, "SELECT content_digest FROM datasets WHERE version = 1")[0][0]
    for file, content in kept:
        file.write_bytes(content)
    _, counts = run_part(curated_copy, texts, settings | {"fuse.side": "96"})
    assert set(work_done(counts)) == {"fuse", "score fused texts"}


def test_the_identity_of_a_fused_text_is_what_it_was_for_a_model_that_sees(settings: dict[str, str]):
    recipe = load_recipe("demo", settings)
    assert recipe.fuse is not None and isinstance(identity.fuser(recipe), VisionLanguageModel)
    scorer = identity.fuse_scorer(recipe, ("a", "b", "c"))
    given = recipe.fuse.model_dump(include={"prompt", "max_tokens", "precision", "side"})
    status = generation_status.VERSION
    versions = {"decode": Decode().version, "filling": fuse.VERSION, "status": status, "unsupported": 1}
    assert scorer.settings == {**given, **versions}
    assert (scorer.version, scorer.model) == (1, model_digest(settings["models.captioner"]))


def test_the_side_and_the_decoder_are_nothing_to_a_model_of_texts_alone(by_text: dict[str, str]):
    recipe, wider = load_recipe("demo", by_text), load_recipe("demo", by_text | {"fuse.side": "96"})
    scorer = identity.fuse_scorer(recipe, ())
    assert scorer.digest == identity.fuse_scorer(wider, ()).digest
    assert set(scorer.settings) == {"prompt", "max_tokens", "precision", "filling", "status", "unsupported"}
    assert scorer.version == LanguageModel("hf:none").version
    assert identity.fuser(recipe) == LanguageModel(by_text["models.writer"], "fp32", 64)


def test_models_that_cannot_do_it_are_refused_before_any_work(by_text: dict[str, str]):
    with pytest.raises(ModelError, match="no folder"):
        identity.with_scorers(compile_plan(load_recipe("demo", by_text | {"models.writer": "hf:/no/such/folder"})))
    with pytest.raises(ModelError, match=r"captioner 'main': model 'hf:.*' works on text alone"):
        identity.with_scorers(
            compile_plan(load_recipe("demo", by_text | {"models.captioner": by_text["models.writer"]}))
        )


def test_the_default_prompt_names_no_text_that_is_missing():
    lines = FUSE_PROMPT.splitlines()
    whole = fuse.fuse_prompt(FUSE_PROMPT, "A red engine.", ["engine", "street"], "Engine 7 waits.")
    assert whole.splitlines()[:3] == ["Caption of a picture: A red engine.", "Tags: engine, street",
                                      "A sentence that may be about it: Engine 7 waits."]  # fmt: skip
    assert fuse.fuse_prompt(FUSE_PROMPT, "A red engine.", [], "").splitlines() == [whole.splitlines()[0], lines[-1]]
    assert len(lines) == 4
