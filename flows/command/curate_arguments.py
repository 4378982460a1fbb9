"""Declare the commands that curate: `demo`, `preflight`, `run`, `recaption`."""

from typing import Any

from pairmill.flows.command.option_types import sample_size
from pairmill.flows.command.shared_options import (
    INTERRUPTED,
    add_command,
    compute_options,
    export_format_option,
    recipe_options,
    set_option,
    text_or_json_option,
)


def add_curate(commands: Any) -> None:
    """Add these commands to the parser."""
    _demo(commands)
    _preflight(commands)
    _run(commands)
    _recaption(commands)


def _demo(commands: Any) -> None:
    """Add the `demo` command."""
    command = add_command(
        commands, "demo", "pairmill_demo:demo", "make a small world of pages and curate it, in a minute"
    )
    command.set_defaults(interrupted=INTERRUPTED, dry_run=False, retry="", models="recipe")
    command.add_argument("--to", default="pairmill-demo", metavar="DIR",
                         help="a new folder for the pages and the lake; default: pairmill-demo")  # fmt: skip
    set_option(command)
    compute_options(command)


def _preflight(commands: Any) -> None:
    """Add the `preflight` command."""
    text = "run a sample, and forecast yield, time, disk, memory and cost of a run"
    command = add_command(commands, "preflight", "pairmill_preflight:preflight", text)
    command.add_argument(
        "recipe", metavar="RECIPE", help="a recipe (folder, captions, 15m, 30m, 100m, demo) or a YAML file"
    )
    command.add_argument("--sample", type=sample_size, default=5000, metavar="N",
                         help="pictures to run, 50 to 5000; default: 5000")  # fmt: skip
    recipe_options(command)
    compute_options(command)
    text_or_json_option(command)


def _run(commands: Any) -> None:
    """Add the `run` command."""
    command = add_command(commands, "run", "pairmill_run:run", "curate a dataset in this process")
    command.set_defaults(interrupted=INTERRUPTED)
    way = command.add_mutually_exclusive_group()
    way.add_argument("--dry-run", action="store_true", help="count what is pending, by step, and do no work")
    way.add_argument("--retry", default="", metavar="REASON",
                     help="first retry what is quarantined for this reason; then only --source is read")  # fmt: skip
    command.add_argument(
        "recipe", metavar="RECIPE", help="a recipe (folder, captions, 15m, 30m, 100m, demo) or a YAML file"
    )
    recipe_options(command)
    compute_options(command)


def _recaption(commands: Any) -> None:
    """Add the `recaption` command."""
    command = add_command(
        commands,
        "recaption",
        "pairmill_recaption:recaption",
        "caption every picture of a folder or lake, by the recipe captions",
    )
    command.set_defaults(interrupted=INTERRUPTED)
    command.add_argument("recipe", metavar="RECIPE", nargs="?", default="captions",
                         help="use this recipe's first captioner, without its rules; default captions")  # fmt: skip
    recipe_options(command)
    command.add_argument("--to", default="", metavar="URI",
                         help="also export the captions, to a folder or s3://bucket/prefix")  # fmt: skip
    export_format_option(command)
    command.add_argument("--retry", default="", metavar="REASON",
                         help="retry the pictures quarantined for this reason")  # fmt: skip
    command.add_argument("--approve-first", action="store_true",
                         help="show the first 200 captions and ask whether to continue")  # fmt: skip
    compute_options(command)
