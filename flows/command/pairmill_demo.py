"""Implement `pairmill demo`: make a small world of pages, of photographs or drawn, and curate it by a demo recipe."""

import json
import shlex
import subprocess
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.pairmill_run import run
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.run.demo_models import PHOTO_PACKAGES
from pairmill.flows.run.outcome import add_to_report
from pairmill.flows.run.settings import ROOT

DEMO = ROOT / "infra" / "demo"
SEED, DOCUMENTS = 7, 40  # curated in 25 s on two cores
OWN = {"world", "lake", "models", "recipe.yaml"}


def demo(args: Namespace) -> int:
    """Make pages and curate them into a lake, both in the folder ``--to``; a second call finds nothing to do.

    The pages show photographs, and their planted truth tells the run's quality. With ``--drawn``, or without the extra
    [demo], the pictures are drawn.
    Raises PairmillError if the folder holds other files or the other kind of pictures, or the pages cannot be written.
    """
    folder = Path(args.to)
    if folder.exists() and not folder.is_dir():
        raise PairmillError(f"--to '{folder}' is a file; name a new folder.")
    others = sorted(path.name for path in folder.iterdir() if path.name not in OWN) if folder.is_dir() else []
    if others:
        raise PairmillError(f"--to '{folder}' holds other files ({', '.join(others[:3])}); name a new folder.")
    screen, world, lake = console(), folder / "world", folder / "lake"
    models = (folder / "models").resolve()  # stands in the recipe, which another spelling of --to may not change
    lacking = [name for name in PHOTO_PACKAGES if not find_spec(name)]
    is_drawn = args.drawn or bool(lacking)
    if (world / "truth" / ("photographs.json" if is_drawn else "sentences.parquet")).exists():
        here, option = ("photographs", "without --drawn") if is_drawn else ("drawn pictures", "with --drawn")
        raise PairmillError(f"--to '{folder}' holds a demo of {here}; name a new folder, or run it {option}.")
    if is_drawn:
        if not args.drawn:
            extra = f"pip install 'pairmill[demo]' brings {' and '.join(lacking)}, by which it shows photographs"
            screen.print(f"note: the pictures are drawn; {extra}.", markup=False)
        _make_drawn(world, screen)
        args.recipe = "demo"
    else:
        args.recipe = _make_photographs(folder, world, models, screen)
    args.dry_run, args.yes, args.retry, args.models, args.packs = False, True, "", "recipe", []
    args.source, args.lake = [str(world / "pages")], str(lake)
    status = run(args)
    if not is_drawn and not status:
        screen.print("captions are class names of ImageNet in a template, not written by a model")
        arguments = ["--world", str(world), "--lake", str(lake), "--models", str(models)]
        quality = _done("photo_quality.py", arguments, "the demo's quality cannot be measured")
        screen.print(quality, end="")
        add_to_report(str(lake), "demo", quality.strip().replace(":\n", ":").replace("\n", ";"))
        own = f"pairmill run {shlex.quote(args.recipe)} --source FOLDER --lake NEW"
        screen.print(f"recipe  {shown(args.recipe)}: photographs of yours by the same models, {shown(own)}")
    screen.print(f"pages   {shown(world / 'pages')}")
    screen.print(f"lake    {shown(lake)}: for the other commands, export PAIRMILL_LAKE={shown(lake.resolve())}")
    return status


def _make_photographs(folder: Path, world: Path, models: Path, screen: Console) -> str:
    """Make what is missing of pages with photographs, two models and the recipe; return the recipe's path."""
    recipe = folder / "recipe.yaml"
    with screen.status("making pages with photographs, and their models"):
        make_photo_models(models)
        if not (world / "truth" / "photographs.json").exists():
            _done("photo_world.py", ["--out", str(world)], f"the demo world cannot be made in '{world}'")
        if not recipe.exists():
            text = (DEMO / "photos.yaml").read_text(encoding="utf-8")
            for name in ("open_clip:local-dir:{}/clip", "timm:{}/classifier"):
                text = text.replace(f'"{name.format("models")}"', json.dumps(name.format(models)))
            recipe.write_text(text, encoding="utf-8")
    return str(recipe)


def make_photo_models(models: Path) -> None:
    """Make the two models of the extra [demo] in a folder, unless they are there. Raises PairmillError."""
    if not (models / "clip" / "vocab.txt").exists():  # the last file that is written
        _done("photo_towers.py", ["--out", str(models)], f"the demo's models cannot be made in '{models}'")


def _make_drawn(world: Path, screen: Console) -> None:
    """Make pages with drawn pictures unless they are there."""
    if not (world / "truth" / "sentences.parquet").exists():  # the last file that is written
        with screen.status(f"making {DOCUMENTS} pages with pictures"):
            arguments = ["--seed", str(SEED), "--documents", str(DOCUMENTS), "--out", str(world)]
            _done("generate.py", arguments, f"the demo world cannot be made in '{world}'")


def _done(program: str, arguments: list[str], fault: str) -> str:
    """Run a program of infra/demo; return its output. Raises PairmillError: ``fault``, and the program's last line."""
    done = subprocess.run([sys.executable, str(DEMO / program), *arguments], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PairmillError(f"{fault}: {reason[:200]}. Name another folder by --to.")
    return done.stdout
