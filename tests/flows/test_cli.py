"""The command line: what it understands, what it says of bad input, and that it starts at once."""

import shlex
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from pairmill.catalog.recipe.recipe import apply_overrides
from pairmill.flows.command.cli import main
from pairmill.flows.command.commands import commands_by_group, parser
from pairmill.flows.run.settings import RECIPES, load_recipe
from tests.worlds.line import rows
from tests.worlds.shared import new_lake

HEAVY = ("torch", "ray", "prefect", "transformers", "open_clip", "faiss", "spacy")
FRAMES = ("pandas", "numpy", "pyarrow")
RECIPES_NEED = ("pydantic", "yaml")


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a refused command prints: one message, no traceback, and nothing on standard output."""
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert err.startswith("pairmill: ") and "Traceback" not in err
    assert out == ""
    return err


def page(folder: Path) -> str:
    folder.mkdir(exist_ok=True)
    (folder / "page.html").write_text("<p>A red fox sleeps in the sun.</p>")
    return str(folder)


def imported(*arguments: str) -> set[str]:
    """The packages that a command imports that does its work."""
    code = (
        "import sys\nfrom pairmill.flows.command.cli import main\n"
        "try:\n    status = main(sys.argv[1:])\nexcept SystemExit as ended:\n    status = ended.code\n"
        "names = {name.removeprefix('pairmill.').partition('.')[0] for name, module in sys.modules.items() if module}\n"
        "print('\\n' + ' '.join([str(status), *names]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    status, *names = done.stdout.splitlines()[-1].split()
    assert status == "0", done.stderr
    return set(names)


def test_help_imports_the_standard_library_alone():
    assert not imported("--help") & {"catalog", "duckdb", "rich", *FRAMES, *RECIPES_NEED, *HEAVY}


def test_the_version_is_that_of_the_installed_package(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"pairmill {version('pairmill')}\n"


def test_without_a_command_the_help_is_shown(capsys):
    assert main([]) == 0
    assert "usage: pairmill" in capsys.readouterr().out


def test_help_lists_each_command_in_one_group_and_shows_an_example_of_it(capsys):
    (commands,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    assert sorted(commands) == sorted(each.name for group in commands_by_group().values() for each in group)
    for name, command in commands.items():
        _, example = command.format_help().split("example: pairmill ")
        assert parser().parse_args(shlex.split(example)).command and example.startswith(name)


def test_commands_that_read_import_what_they_show_alone(curated: Path, tmp_path: Path):
    lake = ("--lake", str(curated))
    assert not imported("sql", "SELECT 1", "--format", "csv", *lake) & {"rich", *FRAMES, *RECIPES_NEED, *HEAVY}
    for command in (("sql", "SELECT * FROM pairs"), ("datasets",), ("quarantine",)):
        assert not imported(*command, *lake) & {*FRAMES, *RECIPES_NEED, *HEAVY}
    empty = ("--lake", str(new_lake(tmp_path / "lake")))
    assert not imported("status", *empty) & {*FRAMES, *RECIPES_NEED, *HEAVY}


@pytest.mark.slow
def test_why_imports_what_a_recipe_needs_and_no_data_frames(curated: Path):
    ((image,), *_) = rows(curated, "SELECT image_id FROM pairs ORDER BY image_id LIMIT 1")
    ((content,), *_) = rows(curated, "SELECT content FROM matches ORDER BY content LIMIT 1")
    for item in (image, content):
        assert not imported("why", item, "--lake", str(curated)) & {*FRAMES, *HEAVY}


def test_status_of_a_dataset_loads_no_model(curated: Path):
    assert not imported("status", "--lake", str(curated)) & set(HEAVY)


@pytest.mark.parametrize(
    "overrides",
    [("models.clip=open_clip:local-dir:nowhere/here",), ("models.third=hf:nowhere/here", "fuse.model=third")],
    ids=["clip", "the model that fuses"],
)
def test_a_missing_model_is_told_before_a_lake_is_made(capsys, tmp_path: Path, overrides: tuple[str, ...]):
    chosen = [f"--set={override}" for override in overrides]
    arguments = ("--source", page(tmp_path / "source"), "--lake", str(tmp_path / "lake"), *chosen)
    assert "nowhere/here" in said(capsys, "run", "demo", *arguments)
    assert not (tmp_path / "lake").exists()


def test_a_recipe_without_a_source_asks_for_one_before_any_model_is_looked_for(capsys, tmp_path: Path):
    nowhere = "--set=models.clip=open_clip:local-dir:/nowhere/at/all"
    told = said(capsys, "run", "15m", "--lake", str(tmp_path / "lake"), nowhere)
    assert "recipe '15m' names no source; give one: --source" in told


def test_the_lake_is_the_option_then_the_environment_then_the_folder_lake(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PAIRMILL_LAKE", raising=False)
    assert parser().parse_args(["datasets"]).lake == "lake"
    monkeypatch.setenv("PAIRMILL_LAKE", "/data/lake")
    assert parser().parse_args(["datasets"]).lake == "/data/lake"
    assert parser().parse_args(["datasets", "--lake", "mine"]).lake == "mine"


def test_sources_and_overrides_may_repeat():
    args = parser().parse_args(["run", "demo", "--source", "a", "--source", "b", "--set", "x=1", "--set", "y=2"])
    assert (args.source, args.set) == (["a", "b"], ["x=1", "y=2"])


def test_a_dry_run_counts_the_pending_work_and_makes_no_lake(capsys, tmp_path: Path, settings: dict[str, str]):
    models = [f"--set={key}={value}" for key, value in settings.items()]
    lake, source = tmp_path / "lake", page(tmp_path / "pages")
    assert main(["run", "demo", "--dry-run", "--source", source, "--lake", str(lake), *models]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.split()[:1] == ["ingest"])
    assert line.split()[1:3] == ["1", "file"]
    assert not lake.exists()


def test_what_is_set_by_hand_wins_over_the_demo_models_and_their_settings():
    by_hand = {
        "decoding.side": "96",
        "captioners.main.max_tokens": "7",
        "fuse.side": "100",
        "models.captioner": "hf:a/b",
    }
    small, ours = load_recipe("30m", None, "demo"), load_recipe("30m", by_hand, "demo")
    assert ours.decoding.side == 96 != small.decoding.side
    assert ours.captioners[0].max_tokens == 7 and ours.captioners[0].side == small.captioners[0].side
    assert ours.fuse and ours.fuse.side == 100
    assert ours.models == small.models | {"captioner": "hf:a/b"}


def test_the_demo_models_stand_in_for_a_model_that_only_the_scores_declaration_names(tmp_path: Path):
    recipe = tmp_path / "own.yaml"
    recipe.write_text("name: own\nmodels: {clip: 'open_clip:local-dir:a'}\n", encoding="utf-8")
    asked = {"scores.perplexity": "{}"}
    assert "perplexity" not in load_recipe(str(recipe), None, "demo").models
    assert load_recipe(str(recipe), asked, "demo").models["perplexity"].endswith("infra/demo/models/language")
    assert load_recipe(str(recipe), asked | {"models.perplexity": "hf:a/b"}, "demo").models["perplexity"] == "hf:a/b"
    assert "perplexity" not in load_recipe(str(recipe), asked).models


@pytest.mark.parametrize("name", sorted(path.stem for path in RECIPES.glob("*.yaml")))
def test_nothing_overridden_is_the_recipe_itself(name: str):
    recipe = load_recipe(name, None, "demo")
    assert apply_overrides(recipe, {}) == recipe and apply_overrides(recipe, {}).digest() == recipe.digest()
