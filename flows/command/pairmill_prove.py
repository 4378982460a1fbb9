"""Implement `pairmill prove`: what linear heads learn from a version, from the raw pool and from controls."""

import json
import shlex
from argparse import Namespace
from collections.abc import Sequence
from functools import partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.api.question import json_value
from pairmill.flows.command.terminal import console
from pairmill.flows.command.version_commands import export_visibly

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Proof

SETS = {"unseen": "kinds not seen", "kept": "kinds it keeps", "dropped": "kinds it drops"}


def prove(args: Namespace) -> int:
    """Prove versions by a judge, record the proofs in the lake, and print them."""
    from pairmill.flows.command.display import Display
    from pairmill.flows.prove import prove as run_proofs  # the steps of a run, 0.5 CPU s

    if not args.judge and not args.datacomp:
        raise PairmillError("give --judge, a CLIP that made none of the scores, or --datacomp, a folder; or both.")
    check_is_lake(args.lake)
    screen = console()
    tell = partial(screen.print, style="dim", markup=False)
    with create_or_open(args.lake) as lake:
        for spec in args.dataset if args.datacomp else ():
            print(write_training(screen, lake, spec, args.datacomp))
        if not args.judge:
            return 0
        with Display(screen) as display:
            found = run_proofs(
                lake, args.dataset, args.judge, args.seeds, args.right, args.rules, tell, progress=display.progress
            )
    if args.format == "json":
        print(json.dumps(json_value(found), ensure_ascii=False))
    else:
        print_proofs(found)
    return 0


def write_training(screen: Console, lake: Lake, spec: str, folder: str) -> str:
    """Write a version's tars and the script that trains on them below ``folder``; return the line that starts it."""
    dataset = OpenLake(lake).dataset(spec).version
    place = Path(folder).expanduser() / f"{dataset.name}-{dataset.version}"
    text = "text1" if Recipe.model_validate_json(dataset.recipe).association.is_on else "caption"
    to = (dataset.name, dataset.version, f"{place}/shards", "webdataset")
    said = export_visibly(screen, lake, to, "pairs", text=text)
    script = resources.files("pairmill.tasks.release.export").joinpath("datacomp_small.sh")
    (place / "train.sh").write_bytes(script.read_bytes())
    return f"{visible(said)}\nGPUS=8 sh {shlex.quote(str(place / 'train.sh'))}"


def print_proofs(found: "Sequence[Proof]") -> None:
    """Print a table a proof: for each training set and held-out set R@5, the difference to raw, and the verdict."""
    for proof in found:
        print(visible(f"{proof.dataset} against raw: {proof.pool:,} pairs, {proof.kinds} kinds, {proof.seeds} seeds"))
        print(visible(f"judge {proof.judge}"))
        print(f"{'held out':<16}{'trained on':<22}{'pairs':>9}{'kinds':>7}{'R@5':>7}  {'against raw':<16}verdict")
        for line in proof.lines:
            recall = "·" if line.recall is None else f"{line.recall:.3f}"
            against = "" if line.difference is None else f"{line.difference:+.3f} ± {line.half:.3f}"
            print(visible(f"{SETS[line.held_out]:<16}{line.arm:<22}{line.pairs:>9,}{line.kinds:>7}{recall:>7}  "
                          f"{against:<16}{line.verdict}"))  # fmt: skip
        if any(line.arm.startswith("rule ") for line in proof.lines):
            print("a rule's difference is not to raw, but to dropping as many pairs by lot")
