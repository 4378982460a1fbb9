"""Add commands, and the options that several of them have."""

import argparse
import os
from collections.abc import Sequence
from typing import Any

from pairmill.flows.command.command_parser import EXAMPLE
from pairmill.flows.command.option_types import amount, cost, model_sizes, network, worker_count

EXAMPLES = {
    "demo": "pairmill demo --to first-try",
    "preflight": "pairmill preflight 30m --source pages --sample 2000",
    "run": "pairmill run 30m --source pages --lake lake",
    "recaption": "pairmill recaption --source photos --to captions",
    "browse": "pairmill browse --lake lake",
    "report": "pairmill report 30m@3 --open",
    "recut": "pairmill recut 30m@3 --set balance.cap=20",
    "import-scores": "pairmill import-scores laion.parquet --key url --name aesthetic",
    "export": "pairmill export 30m --to out/tars",
    "tag": "pairmill tag 30m@3 release-1",
    "drop": "pairmill drop 30m@2",
    "up": "pairmill up --once curate/demo",
    "doctor": "pairmill doctor 30m",
    "check": "pairmill check --lake lake --repair",
    "maintain": "pairmill maintain --lake lake",
    "takedown": "pairmill takedown --domain example.org --dry-run --lake lake",
    "forget": "pairmill forget --scorer 5d059c78 --dry-run --lake lake",
    "completion": "pairmill completion bash",
    "recipe": "pairmill recipe show 30m",
    "mcp": "pairmill mcp --lake lake",
}
LIMITS = {
    "hours": "hours by the clock",
    "gpu-hours": "hours of work on GPUs, times the GPUs of a worker",
    "rows": "rows written, over all tables",
    "gigabytes": "gigabytes written to the lake",
}
# Commands that exit when their output is closed; the others continue.
READERS = (
    "report",
    "doctor",
    "recipe",
    "completion",
)
INTERRUPTED = "stopped. What was finished is committed; the same command again goes on from there."


def add_command(commands: Any, name: str, function: str, text: str, example: str = "") -> argparse.ArgumentParser:
    """Add a command that calls ``function`` ('module:function'); ``text`` is its help."""
    about = text[0].upper() + text[1:] + "."
    command = commands.add_parser(
        name, description=about, epilog=f"{EXAMPLE}{example or EXAMPLES[name]}", allow_abbrev=False
    )
    command.set_defaults(command=function, parser=command, interrupted="stopped.", lasts=name not in READERS)
    return command


def recipe_options(command: argparse.ArgumentParser) -> None:
    """Add ``--source``, ``--lake`` and the options that change a recipe's settings."""
    source_option(command)
    lake_option(command)
    setting_options(command)


def source_option(command: Any) -> None:
    """Add ``--source`` to a command or a group of options."""
    places = "folder, file, s3://bucket/prefix or https://host/list, also as FORMAT:PLACE; may repeat"
    command.add_argument("--source", action="append", default=[], metavar="URI", help=places)


def lake_option(command: argparse.ArgumentParser) -> None:
    """Add the ``--lake`` option."""
    default = os.environ.get("PAIRMILL_LAKE") or "lake"
    text = f"the lake's folder or its lake.yaml; default PAIRMILL_LAKE, then lake/ (now {default})"
    command.add_argument("--lake", default=default, metavar="DIR", help=text)


def setting_options(command: Any) -> None:
    """Add the options that change a recipe's settings: ``--models`` and ``--set``."""
    command.add_argument("--models", choices=("recipe", "demo"), default="recipe",
                         help="'demo' swaps in the small models that ship")  # fmt: skip
    set_option(command)


def set_option(command: Any) -> None:
    """Add ``--set``."""
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                         help="override a setting of the recipe: --set balance.cap=20; may repeat")  # fmt: skip


def compute_options(command: argparse.ArgumentParser) -> None:
    """Add the options for workers, models, cost and Ray."""
    compute = command.add_argument_group("where it runs; any choice gives the same dataset")
    compute.add_argument(
        "--workers", type=worker_count, default=0, metavar="N", help="worker processes; 0 means one per CPU"
    )
    compute.add_argument("--model", type=model_sizes, action="append", default=[], metavar="NAME:SIZES",
                         help="a model's resources: clip:gpus=0.25,replicas=1-8,feeders=4, on a cluster's GPUs of one "
                         "kind captioner:accelerator=H100, or behind endpoints "
                         "captioner:key=VARIABLE,connections=64,prompt_price=0.15,answer_price=0.6; "
                         "may repeat")  # fmt: skip
    compute.add_argument("--max-cost", type=cost, default=0.0, metavar="SUM",
                         help="the most that generated texts may cost, by the prices of --model")  # fmt: skip
    limits = command.add_argument_group("where it stops, at a commit; the same command again goes on")
    for name, meaning in LIMITS.items():
        limits.add_argument(f"--max-{name}", type=amount, default=0.0, metavar="N", help=f"the most {meaning}")
    limits.add_argument("--wait", type=amount, default=0.0, metavar="MINUTES",
                        help="wait so long while another run writes to the lake")  # fmt: skip
    limits.add_argument("--stall-minutes", type=amount, default=60.0, metavar="N",
                        help="end workers of a stage that finishes no row for so long; default: 60")  # fmt: skip
    command.add_argument("--log-format", choices=("text", "json"), default="text",
                         help="json: on standard error one object a line, of the workers too, and no progress bars; "
                         "the result stays on standard output")  # fmt: skip
    compute.add_argument("--metrics", default="", metavar="[HOST:]PORT",
                         help="serve the run's metrics to Prometheus; a port alone is loopback's")  # fmt: skip
    compute.add_argument("--ray", default="", metavar="ADDRESS",
                         help="a Ray cluster ('auto' finds this machine's), or 'local' to start Ray here")  # fmt: skip
    compute.add_argument("--allow-address", type=network, action="append", default=[], metavar="CIDR",
                         help="also fetch from this private network, such as 10.1.0.0/16; may repeat")  # fmt: skip


def format_option(command: argparse.ArgumentParser) -> None:
    """Add ``--format``."""
    command.add_argument("--format", choices=("table", "csv", "spreadsheet", "json"), default="table",
                         help="spreadsheet: CSV in which no text can be a formula")  # fmt: skip


def text_or_json_option(command: argparse.ArgumentParser) -> None:
    """Add the ``--format`` of commands whose result is more than one table."""
    command.add_argument("--format", choices=("table", "json"), default="table", help="json: one object, for scripts")


def export_format_option(command: argparse.ArgumentParser, more: Sequence[str] = (), about: str = "") -> None:
    """Add the ``--format`` of an export; ``more`` are further formats, ``about`` says what they are."""
    command.add_argument("--format", choices=("webdataset", "parquet", "texts", *more), default="webdataset",
                         help="webdataset: tars of .jpg, .txt and .json; parquet: tables with the pictures; "
                         f"texts: the same without; {about}default: webdataset")  # fmt: skip


def removal_options(command: Any, yes: dict[str, Any] | None = None) -> None:
    """Add the options that every removal has; ``yes`` are the arguments of ``--yes``."""
    command.add_argument("--dry-run", action="store_true", help="only say what would go")
    command.add_argument("--yes", **(yes or {"action": "store_true", "help": "do not ask"}))
    command.add_argument("--report", metavar="FILE", default="", help="also write the report of the removal, as JSON")
