"""Check README and infra/docs: generated parts are up to date, links lead to files, and commands parse and run."""

import contextlib
import io
import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from PIL import Image

from infra.site.build import MADE
from infra.site.pages import source_pages
from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.location import Location, locate
from pairmill.catalog.recipe.parts import Rule
from pairmill.catalog.recipe.parts_of_texts import Captioner
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.command.cli import main
from pairmill.flows.command.commands import parser
from pairmill.flows.command.pairmill_run import compute_of
from pairmill.flows.run.settings import RECIPES
from pairmill.tasks.run.place.placement import ModelPool, Placement
from tests.worlds.generated import generate
from tests.worlds.lake_of_format_1 import defaults, settings_in
from tests.worlds.shared import opened_new
from tests.worlds.wheel import demo_by_wheel, told_by_wheel

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "infra" / "docs"
PAIRMILL = "import pairmill"
STALL = 60.0  # minutes after which a stage that finishes nothing is stopped, unless an option says otherwise
README = (ROOT / "README.md").read_text(encoding="utf-8")
# The pages that README's last section links, then the others: a page's commands use what former ones made.
LINKED = re.findall(r"^- \[.*\]\(infra/docs/(.*?)\)", README, re.MULTILINE)
NAMES = [*LINKED, *sorted({path.name for path in DOCS.glob("*.md")} - {*LINKED})]
PAGES = {f"infra/docs/{name}": (DOCS / name).read_text(encoding="utf-8") for name in NAMES}
DOCUMENTS = {"README.md": README, **PAGES}
# These start or need a server, or run the tests; tests/flows/test_up.py and CI run them.
ELSEWHERE = (
    "make ",
    "pairmill up",
    "pairmill browse",
    "export PREFECT_API_URL=",
    "prefect ",
)
# `pip install ./colours` installs into a folder of the test instead of this environment.
INSTALL = "pip install ./"
OF_DEMO = re.compile(r"pairmill demo|pairmill why 000/|(pairmill|drawn)-demo/|classes\.txt")
# A process of its own has what a shell does, and what such a package or a library of the machine's adds.
APART = re.compile(r"&& | > |colour|load_dataset|webdataset|DataLoader")


def steps() -> list[tuple[str, str]]:
    """List each shell command of the documents once, each Python program, and each file that is shown, in order.

    Each comes with its language, a file with "file PATH". Commands that are tested elsewhere are left out.
    """
    found: dict[tuple[str, str], None] = {}
    for text in DOCUMENTS.values():
        for language, title, block in re.findall(r'```(\w+)(?: title="(.*?)")?\n(.*?)```', text, re.DOTALL):
            if title:
                found[f"file {title}", block] = None
            elif language == "sh":
                lines = [line for line in block.splitlines() if line.strip() and not line.startswith(ELSEWHERE)]
                found |= {("sh", line): None for line in lines}
            elif language == "python" and ("load_dataset" in block or "webdataset" in block or PAIRMILL in block):
                found["python", block] = None
    return list(found)


def commands() -> list[str]:
    """List the shell commands of `steps`."""
    return [text for language, text in steps() if language == "sh"]


def section_of(page: str, heading: str) -> str:
    """Return the text below a second-level heading of a page."""
    return re.findall(rf"## {heading}\n(.*?)(?:\n## |\Z)", PAGES[page], re.DOTALL)[0]


def shown_outputs() -> dict[str, list[str]]:
    """Return the lines that README shows below each command."""
    blocks = re.findall(r"```sh\n([^\n]*)\n```\n\n```text\n(.*?)```", README, re.DOTALL)
    return {command: [line for line in text.splitlines() if line != "  …"] for command, text in blocks}


def without_numbers(text: str) -> str:
    """Replace ids and numbers, which differ a little between CPUs, and runs of spaces."""
    return " ".join(re.sub(r"\b[0-9a-f]{32}\b|\d+", "#", text).split())


def done_here(language: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command or program in this process, which has imported the libraries and has workers: 3 CPU s less each."""
    out, error = io.StringIO(), io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
        if language == "sh":
            status = main(shlex.split(text)[1:])
        else:
            (folder / "program.py").write_text(text)
            runpy.run_path("program.py", run_name="__main__")
            status = 0
    return subprocess.CompletedProcess(text, status, out.getvalue(), error.getvalue())


def done(language: str, text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command or a program of the documents in ``folder``."""
    if text == "pairmill demo":
        shutil.copytree(demo_by_wheel(), folder / "pairmill-demo")
        return subprocess.CompletedProcess(text, 0, told_by_wheel()["demo"], "")
    if not APART.search(text) and (language == "python" or text.startswith("pairmill ")):
        return done_here(language, text, folder)
    if language == "python":
        (folder / "program.py").write_text(text)
        text = f"HF_DATASETS_OFFLINE=1 HF_HOME={folder} {sys.executable} program.py"
    return shell(text.replace(INSTALL, "pip install -q --no-deps --no-build-isolation --target added ./"), folder)


def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command with this environment's programs on the path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # One thread: the tutorial's training takes 10 CPU s with one and 40 with two that wait for each other.
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(folder / "added"), "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=600)


def test_the_readme_fits_on_a_screen_and_has_a_line_for_every_page():
    assert len(README.encode()) <= 6000 and len(README.split()) <= 900
    assert {*LINKED} <= {path.name for path in DOCS.glob("*.md")} and len(LINKED) > 10
    assert len(shown_outputs()) == 3 and set(shown_outputs()) <= set(commands())
    assert (DOCS / "report.webp").stat().st_size <= 120_000


def test_every_link_of_the_documents_leads_to_a_file():
    links = [(name, link) for name, text in DOCUMENTS.items() for link in re.findall(r"\]\(([^)#]+)", text)]
    files = [(name, link) for name, link in links if not link.startswith("https://")]
    assert len(files) > 15
    made = {*MADE, *source_pages().values(), "llms.txt", "llms-full.txt"}
    assert [each for each in files if not ((ROOT / each[0]).parent / each[1]).exists() and each[1] not in made] == []


@pytest.mark.parametrize("script", ["score_table.py", "format_table.py", "scale.py"])
def test_what_documents_take_from_the_code_is_up_to_date(script: str):
    done = subprocess.run([sys.executable, ROOT / "infra" / script, "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_recipe_that_is_shown_is_the_shipped_one_abridged():
    shown = yaml.safe_load(re.findall(r"# A recipe\n\n```yaml\n(.*?)```", PAGES["infra/docs/recipes.md"], re.DOTALL)[0])
    whole = yaml.safe_load((RECIPES / f"{shown['name']}.yaml").read_text(encoding="utf-8"))
    for part, content in shown.items():
        if part in ("images", "sentences"):
            assert all(rule in whole[part] for rule in content), part
        elif isinstance(content, dict):
            assert content.items() <= whole[part].items(), part
        else:
            assert content == whole[part], part


@pytest.mark.parametrize("name", ["15m", "30m", "100m"])
def test_a_line_of_a_big_recipe_says_whether_it_is_the_papers_or_ours(name: str):
    text = (RECIPES / f"{name}.yaml").read_text(encoding="utf-8")
    # Deeper lines are a prompt's text.
    lines = [line for line in text.splitlines() if (line.endswith("}") or " # " in line) and line[:4] != "    "]
    unmarked = [line for line in lines if not re.search(r"# (paper|ours)(:|;|$)", line)]
    assert [line.split(":")[0] for line in unmarked if "#" not in line[:1]] == ["fetch"], (
        "what a fetch may take is no stage"
    )
    assert len(lines) > 15 and "REALSYN.md" in text and "infra/REALSYN.md" in PAGES["infra/docs/recipes.md"]


def test_the_lake_and_the_command_for_more_than_one_machine_are_understood(tmp_path: Path):
    section = section_of("infra/docs/scale.md", "On more than one machine")
    (tmp_path / "lake.yaml").write_text(re.findall(r"```yaml\n(.*?)```", section, re.DOTALL)[0])
    place = Location(str(tmp_path), "postgresql://pairmill@db.example.org:5432/pairmill", "s3://bucket/lake/")
    assert locate(tmp_path) == place
    args = parser().parse_args(shlex.split(re.findall(r"`pairmill (.*?)`", section)[0]))
    assert args.lake == "lake.yaml"
    assert compute_of(args).placement() == Placement(
        workers=64, ray_address="auto", models={"clip": ModelPool(0.25)}, stall_minutes=STALL
    )


def test_the_sizes_of_models_on_gpus_are_understood():
    section = section_of("infra/docs/scale.md", "On GPUs")
    args = parser().parse_args(shlex.split(re.findall(r"`pairmill (.*?)`", section)[0]))
    sizes = {"clip": ModelPool(0.25, (1, 8), 4), "captioner": ModelPool(1)}
    assert compute_of(args).placement() == Placement(models=sizes, stall_minutes=STALL)


def test_every_command_of_the_documents_is_understood():
    in_table = re.findall(r"\| `(pairmill [^`]+)` \|", README)
    assert len(in_table) >= 5
    parts = [part for command in [*commands(), *in_table] for part in command.split(" && ")]
    lines = [shlex.split(part.split(" > ")[0]) for part in parts]
    assert {line[0] for line in lines} == {"pairmill", "pip", "python", "printf", "mv", "cp", "tar", "mkdir"}
    lines = [line for line in lines if line[0] == "pairmill"]
    assert len(lines) >= 50
    for line in lines:
        assert parser().parse_args(line[1:])


def test_nearly_every_setting_stands_in_a_shipped_recipe_or_in_a_page():
    shown = {each for path in RECIPES.glob("*.yaml") for each in settings_in(Recipe, yaml.safe_load(path.read_text()))}
    for text in DOCUMENTS.values():
        pieces = re.findall(r"```yaml[^\n]*\n(.*?)```", text, re.DOTALL)
        pieces += re.findall(r"`((?:\{name|\w+): [^`]+)`", text)  # {name: easy, calibrate: {drop: 0.15}}, section: {…}
        found = [yaml.safe_load(each.replace("…", "x")) for each in pieces]
        for place in re.findall(r"--set '?([\w.]+)=", text):
            found.append({})
            for key in reversed(place.split(".")):
                found[-1] = {key: found[-1]}
        parts = [
            (part, each) for each in found for part in (Recipe, Rule, Captioner) if {*each} <= {*part.model_fields}
        ]
        shown |= {each for part, value in parts for each in settings_in(part, value)}
    hidden = [name for name in defaults() if name[0].isupper() and name not in shown]
    assert len(hidden) <= 10, hidden


@pytest.mark.slow
def test_the_examples_in_python_pass_strict_typing(tmp_path: Path):
    examples = [block for language, block in steps() if language == "python" and PAIRMILL in block]
    assert len(examples) >= 5
    for n, block in enumerate(examples):
        (tmp_path / f"example{n}.py").write_text(block)
    settings = {
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnusedExpression": False,
        "include": ["."],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    done = shell(f"pyright -p . --pythonpath {sys.executable}", tmp_path)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("of_demo", [False, True], ids=["others", "of the demo"])
def test_every_command_of_the_documents_runs(of_demo: bool, tmp_path: Path):
    """Those on the demo's world need nothing of the others, and both take as long."""
    pages = generate(tmp_path / "world", seed=5, documents=8)
    pages.rename(tmp_path / "pages")
    Image.effect_noise((200, 160), 80).convert("RGB").save(tmp_path / "pages/picture.jpg")
    (tmp_path / "photos").mkdir()
    Image.effect_noise((160, 120), 60).convert("RGB").save(tmp_path / "photos/noise.jpg")
    # An address of a range reserved for documentation (RFC 5737): a fetch does not contact it.
    addresses = pa.table({"url": ["http://192.0.2.1/a.jpg"], "caption": ["A picture that is not there."]})
    pq.write_table(addresses, tmp_path / "laion.parquet")
    for language, command in steps():
        if bool(OF_DEMO.search(command)) != of_demo:
            continue
        if language.startswith("file "):
            file = tmp_path / language.removeprefix("file ")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(command)
            continue
        found = done(language, command, tmp_path)
        keeps_none = "--lake laion" in command  # its address is not contacted, so there is no pair
        allowed = (0, 3) if keeps_none else (0,)
        assert found.returncode in allowed, f"{command}\n{found.stdout[-1500:]}\n{found.stderr[-1500:]}"
        assert found.stdout.strip() or not command.startswith("pairmill") or " > " in command, command
        if command.startswith(("pairmill demo", "pairmill why")):
            said = without_numbers(found.stdout)
            assert [line for line in shown_outputs().get(command, []) if without_numbers(line) not in said] == []


def test_a_copied_lake_attached_as_the_docs_say_reads_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    statements = re.findall(r"```sql\n(ATTACH.*?)```", PAGES["infra/docs/queries.md"], re.DOTALL)[0].split(";")
    with opened_new(tmp_path / "original") as lake:
        lake.execute("INSERT INTO pairs BY NAME SELECT '30m' AS dataset, 1 AS version, 'a' AS image_id")
    shutil.copytree(tmp_path / "original", tmp_path / "lake")
    shutil.rmtree(tmp_path / "original")
    monkeypatch.chdir(tmp_path)
    with connect("ducklake", "sqlite_scanner") as plain:
        for statement in filter(str.strip, statements):
            found = plain.execute(statement)
        assert len(found.fetchall()) == 1
