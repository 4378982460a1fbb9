"""How large a run makes each model: what is taken on the command line and in Prefect, what is refused, in a line."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import validate
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.cli import main
from pairmill.flows.command.commands import parser
from pairmill.flows.command.pairmill_run import compute_of
from pairmill.flows.run.model_size import AN_EXAMPLE, ModelSize, check_sizes, parse_size
from pairmill.flows.run.settings import Compute
from pairmill.tasks.run.place.placement import ModelPool, Placement


def placed(*options: str) -> Placement:
    """Where a run with these options works."""
    return compute_of(parser().parse_args(["run", "demo", *options])).placement()


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What an error that the user can mend prints: one line."""
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert said.startswith("pairmill: ") and said.count("\n") == 1
    return said


@pytest.mark.parametrize(
    ("text", "pool"),
    [
        (AN_EXAMPLE, ModelPool(0.25, (1, 8), 4)),
        ("clip:gpus=1", ModelPool(1, (0, 0), None)),
        ("clip:gpus=0", ModelPool(0, (0, 0), None)),
        ("clip:replicas=3", ModelPool(None, (3, 3), None)),
        ("clip: feeders = 0 , gpus = 1", ModelPool(1, (0, 0), 0)),
    ],
)
def test_a_models_sizes_are_taken_as_they_are_written(text: str, pool: ModelPool):
    assert placed("--model", text) == Placement(models={"clip": pool})


def test_an_accelerator_is_chosen_on_a_cluster_and_refused_without_one(capsys, tmp_path: Path):
    chosen = ["--model", "clip:accelerator=A100-40G"]
    assert placed("--ray", "auto", *chosen).models == {"clip": ModelPool(accelerator="A100-40G")}
    for ray in ([], ["--ray", "local"]):
        told = refused(capsys, "run", "demo", "--lake", str(tmp_path / "lake"), *ray, *chosen)
        assert "accelerator of 'clip' chooses among a Ray cluster's machines, and this run has none; name the" in told


def test_several_models_have_sizes_and_others_the_default():
    where = placed("--model", "clip:gpus=0.5", "--model", "captioner:gpus=1", "--workers", "3")
    assert where == Placement(workers=3, models={"clip": ModelPool(0.5), "captioner": ModelPool(1)})
    assert where.pool_of("fuser") == ModelPool()


def test_prefect_and_the_command_line_place_alike():
    form = {"clip": {"gpus": 0.25, "replicas": [1, 8], "feeders": 4}}
    assert Compute.model_validate({"models": form}).placement() == placed("--model", AN_EXAMPLE)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clip", "'clip' does not say a model's size; write it as clip:gpus=0.25,"),
        ("clip:", "write it as clip:gpus=0.25,"),
        (":gpus=1", "write it as clip:gpus=0.25,"),
        ("clip:gpu=1", "'gpu=1' is no setting of a model; did you mean 'gpus'?"),
        ("clip:gpus", "'gpus' is no setting of a model; write it as clip:gpus=0.25"),
        ("clip:gpus=1,gpus=2", "'gpus' is given twice for 'clip'; give it once"),
        ("clip:gpus=one", "'one' is no number of gpus; give 0.25 or 1"),
        ("clip:gpus=1.5", "gpus of 'clip': 1.5 is neither a part of one card nor a whole one; give 0, 1, or"),
        ("clip:gpus=0.33333", "of at most 4 decimals, such as 0.25"),
        ("clip:gpus=0.001", "0.001 is neither"),
        ("clip:gpus=nan", "gpus of 'clip': nan is neither"),
        ("clip:gpus=-1", "gpus of 'clip': -1.0 is neither"),
        ("clip:gpus=2", "gpus of 'clip': 2 cards are more than a process uses: it works on one. For several"),
        ("clip:gpus=2", "serve it (vllm serve MODEL --tensor-parallel-size 2) and name it as http:NAME@http://"),
        ("clip:replicas=", "'' is no number of replicas; give 4 or 1-8"),
        ("clip:replicas=8-1", "replicas of 'clip': give a number from 1 to 10000, or the least and the most"),
        ("clip:replicas=0-2", "the least and the most"),
        ("clip:replicas=1-2-3", "the least and the most"),
        ("clip:replicas=0", "the least and the most"),
        ("clip:feeders=1.5", "'1.5' is no number of feeders; give 4"),
        (
            "clip:accelerator=H 100",
            "accelerator of 'clip': 'H 100' is no kind of GPU: give Ray's name for it, of letters",
        ),
        ("clip:accelerator=-H100", "such as H100, A100-40G or L4"),
        ("clip:accelerator=H100,gpus=0", "'clip': gpus=0 keeps it on CPUs, and accelerator=H100 asks for a GPU"),
        ("clip:feeders=65", "feeders of 'clip': Input should be less than or equal to 64"),
    ],
)
def test_what_is_no_size_is_refused_in_a_line_that_says_how_to_write_it(capsys, text: str, message: str):
    with pytest.raises(ValueError) as refusal:
        parse_size(text)
    assert message in str(refusal.value) and "\n" not in str(refusal.value)
    with pytest.raises(SystemExit) as ended:
        parser().parse_args(["run", "demo", "--model", text])
    assert ended.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("pairmill run: argument --model: ")


def test_a_card_and_a_half_is_refused_in_prefect_by_the_same_words():
    with pytest.raises(ValidationError, match=r"1\.5 is neither a part of one card nor a whole one"):
        ModelSize.model_validate({"gpus": 1.5})


@pytest.mark.parametrize("command", [["run", "demo"], ["recaption", "demo"]])
def test_a_model_whose_sizes_stand_apart_is_refused(capsys, tmp_path: Path, command: list[str]):
    twice = ["--model", "clip:gpus=1", "--model", "clip:feeders=2"]
    told = refused(capsys, *command, "--lake", str(tmp_path / "lake"), *twice)
    assert "--model clip is given twice; give its sizes once: clip:gpus=0.25," in told
    assert not (tmp_path / "lake").exists()


def test_a_model_that_the_recipe_does_not_name_is_refused_before_a_lake_is_made(
    capsys, tmp_path: Path, settings: dict[str, str]
):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "page.html").write_text("<p>A red fox sleeps in the sun.</p>")
    models = [f"--set={key}={value}" for key, value in settings.items()]
    where = ["--source", str(tmp_path / "pages")]
    told = refused(capsys, "run", "demo", *where, "--lake", str(tmp_path / "lake"), *models, "--model", "clap:gpus=1")
    assert "recipe 'demo' has no model 'clap'; did you mean 'clip'?" in told
    assert "--model (compute.models)" in told
    assert not (tmp_path / "lake").exists()


def test_a_model_that_only_a_scores_declaration_names_has_a_size_where_the_recipe_asks_for_the_score():
    size = {"parser": ModelSize(feeders=2)}  # pyright: ignore[reportCallIssue]
    clip = {"name": "own", "models": {"clip": "open_clip:local-dir:a"}}
    asking = clip | {"sentences": [{"name": "action", "keep": "has_action"}]}
    check_sizes(size, 0, compile_plan(validate(asking, "own")))
    with pytest.raises(PairmillError, match=r"no model 'parser'; name one of clip\."):
        check_sizes(size, 0, compile_plan(validate(clip, "own")))
