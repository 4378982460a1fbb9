"""Declare the command line: commands in groups, each with its options, an example and the function that it calls."""

import argparse
import os
from typing import Any, NoReturn

from pairmill.flows.command.option_types import above_0, cost, model_sizes, network, worker_count

GROUPS = {
    "curate": ("demo", "run", "recaption", "fetch", "replay"),
    "look": ("status", "browse", "sql", "why", "datasets", "quarantine"),
    "export": ("export",),
    "operate": ("up", "serve-model"),
}
EXAMPLES = {
    "demo": "pairmill demo --to first-try",
    "run": "pairmill run 30m --source pages --lake lake",
    "recaption": "pairmill recaption --source photos --to captions",
    "fetch": "pairmill fetch --retry-failed",
    "replay": "pairmill replay --reason out_of_memory",
    "status": "pairmill status 30m --source pages",
    "browse": "pairmill browse --lake lake",
    "sql": 'pairmill sql "SELECT count(*) FROM images"',
    "why": "pairmill why https://example.org/fox.jpg",
    "datasets": "pairmill datasets --format csv",
    "quarantine": "pairmill quarantine",
    "export": "pairmill export 30m --to out/tars",
    "up": "pairmill up --once curate/demo",
    "serve-model": "pairmill serve-model hf:Qwen/Qwen2.5-VL-3B-Instruct --env engine",
}
READERS = ("sql", "status", "why", "datasets", "quarantine")  # exit when their output is closed; the others continue
INTERRUPTED = "stopped. What was finished is committed; the same command again goes on from there."


class _Parser(argparse.ArgumentParser):
    """Parser that names the nearest choice for a misspelt one, and keeps the line breaks of its epilog."""

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is not among the action's choices, with the nearest of them."""
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches

        choices = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), choices, n=1)
        remedy = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(choices)}."
        raise argparse.ArgumentError(action, f"there is no '{value}'; {remedy}")


class _Version(argparse.Action):
    """Print the installed version and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print ``pairmill VERSION``."""
        from importlib.metadata import version

        print(f"pairmill {version('pairmill')}")
        parser.exit()


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    top = _Parser(prog="pairmill", description="Curate image-text datasets from web documents.")
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", help="one of those below")
    _demo(commands)
    _run(commands)
    _recaption(commands)
    _up(commands)
    _serve_model(commands)
    _again(commands)
    _browse(commands)
    _readers(commands)
    top.epilog = _grouped({name: command.description or "" for name, command in commands.choices.items()})
    return top


def _grouped(descriptions: dict[str, str]) -> str:
    """List the commands by group, one a line."""
    lines = []
    for group, names in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<13}{descriptions[name].rstrip('.')}" for name in names), ""]
    return "\n".join([*lines, "`pairmill COMMAND --help` shows a command's options and an example."])


def _demo(commands: Any) -> None:
    """Add the `demo` command."""
    command = _command(commands, "demo", "pairmill_demo:demo", "make a small world of pages and curate it, in a minute")
    command.set_defaults(interrupted=INTERRUPTED, dry_run=False, models="recipe")
    command.add_argument("--to", default="pairmill-demo", metavar="DIR",
                         help="a new folder for the pages and the lake; default: pairmill-demo")  # fmt: skip
    _set_option(command)
    _compute_options(command)


def _run(commands: Any) -> None:
    """Add the `run` command."""
    command = _command(commands, "run", "pairmill_run:run", "curate a dataset in this process")
    command.set_defaults(interrupted=INTERRUPTED)
    command.add_argument("--dry-run", action="store_true", help="count what is pending, by step, and do no work")
    command.add_argument("recipe", metavar="RECIPE", help="a recipe (folder, 15m, 30m, 100m, demo) or a YAML file")
    _recipe_options(command)
    _compute_options(command)


def _recaption(commands: Any) -> None:
    """Add the `recaption` command."""
    command = _command(
        commands, "recaption", "pairmill_recaption:recaption", "caption every picture of a folder or lake"
    )
    command.set_defaults(interrupted=INTERRUPTED)
    command.add_argument("recipe", metavar="RECIPE", nargs="?", default="30m",
                         help="use this recipe's first captioner, without its rules; default 30m")  # fmt: skip
    _recipe_options(command)
    command.add_argument("--to", default="", metavar="URI",
                         help="also export the captions, to a folder or s3://bucket/prefix")  # fmt: skip
    command.add_argument("--format", choices=("webdataset", "parquet"), default="webdataset",
                         help="webdataset: tars of picture, .txt and .json; parquet: texts alone")  # fmt: skip
    command.add_argument("--retry", default="", metavar="REASON",
                         help="retry the pictures quarantined for this reason")  # fmt: skip
    command.add_argument("--approve-first", action="store_true",
                         help="show the first 200 captions and ask whether to continue")  # fmt: skip
    _compute_options(command)


def _compute_options(command: argparse.ArgumentParser) -> None:
    """Add the options for workers, models, cost and Ray."""
    compute = command.add_argument_group("where it runs; any choice gives the same dataset")
    compute.add_argument(
        "--workers", type=worker_count, default=0, metavar="N", help="worker processes; 0 means one per CPU"
    )
    compute.add_argument("--model", type=model_sizes, action="append", default=[], metavar="NAME:SIZES",
                         help="a model's resources: clip:gpus=0.25,replicas=1-8,feeders=4, or behind endpoints "
                         "captioner:key=VARIABLE,connections=64,prompt_price=0.15,answer_price=0.6; "
                         "may repeat")  # fmt: skip
    compute.add_argument("--max-cost", type=cost, default=0.0, metavar="SUM",
                         help="the most that generated texts may cost, by the prices of --model")  # fmt: skip
    compute.add_argument("--ray", default="", metavar="ADDRESS",
                         help="a Ray cluster ('auto' finds this machine's), or 'local' to start Ray here")  # fmt: skip
    compute.add_argument("--allow-address", type=network, action="append", default=[], metavar="CIDR",
                         help="also fetch from this private network, such as 10.1.0.0/16; may repeat")  # fmt: skip


def _again(commands: Any) -> None:
    """Add the commands that retry failed items: `fetch` and `replay`."""
    fetch = _command(commands, "fetch", "pairmill_retry:fetch_addresses", "fetch the pictures that documents link to")
    failed = "retry those that failed for a passing reason: time-outs, 429, 5xx, lost connections"
    fetch.add_argument("--retry-failed", action="store_true", help=failed)
    fetch.add_argument("--source", action="append", default=[], metavar="URI",
                       help="list it first, into a lake that may be new; may repeat")  # fmt: skip
    replay = _command(commands, "replay", "pairmill_retry:replay", "try quarantined items again, and curate")
    replay.set_defaults(source=[])
    replay.add_argument("--reason", required=True, metavar="REASON", help="as `pairmill quarantine` shows it")
    for command in (fetch, replay):
        command.set_defaults(interrupted=INTERRUPTED)
        command.add_argument("recipe", metavar="RECIPE", nargs="?", default="", help="default: that of the newest run")
        _lake_option(command)
        _setting_options(command)
        _compute_options(command)


def _recipe_options(command: argparse.ArgumentParser) -> None:
    """Add ``--source``, ``--lake`` and the options that change a recipe's settings."""
    places = "folder, file, s3://bucket/prefix or https://host/list, also as FORMAT:PLACE; may repeat"
    command.add_argument("--source", action="append", default=[], metavar="URI", help=places)
    _lake_option(command)
    _setting_options(command)


def _setting_options(command: argparse.ArgumentParser) -> None:
    """Add the options that change a recipe's settings: ``--models`` and ``--set``."""
    command.add_argument("--models", choices=("recipe", "demo"), default="recipe",
                         help="'demo' swaps in the small models that ship")  # fmt: skip
    _set_option(command)


def _set_option(command: argparse.ArgumentParser) -> None:
    """Add ``--set``."""
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                         help="override a setting of the recipe: --set balance.cap=20; may repeat")  # fmt: skip


def _up(commands: Any) -> None:
    """Add the `up` command."""
    command = _command(commands, "up", "pairmill_up:up", "start Prefect's server, its deployments and a worker")
    command.set_defaults(interrupted=INTERRUPTED)
    command.add_argument("--once", metavar="DEPLOYMENT", default="",
                         help="run this deployment (curate/demo), show its outcome, and stop")  # fmt: skip
    _recipe_options(command)


def _serve_model(commands: Any) -> None:
    """Add the `serve-model` command."""
    command = _command(commands, "serve-model", "pairmill_serve_model:serve_model",
                       "serve a captioner by an engine of another environment")  # fmt: skip
    command.add_argument("spec", metavar="MODEL", help="hf:NAME or hf:FOLDER")
    command.add_argument("--engine", choices=("vllm", "sglang", "transformers"), default="vllm", help="default: vllm")
    command.add_argument("--env", required=True, metavar="DIR", help="the engine's own environment of Python")
    command.add_argument("--port", type=above_0, default=8000, metavar="N", help="default: 8000, on this machine alone")
    command.add_argument("--gpus", type=above_0, default=1, metavar="N", help="GPUs that share the model; default: 1")
    command.add_argument("--dtype", choices=("auto", "bfloat16", "float16", "float32"), default="auto",
                         help="number format of the computation; default: that of the weights")  # fmt: skip
    command.add_argument("--max-num-seqs", type=above_0, default=256, metavar="N",
                         help="texts generated at the same time; default: 256")  # fmt: skip


def _browse(commands: Any) -> None:
    """Add the `browse` command."""
    command = _command(commands, "browse", "pairmill_browse:browse", "show a lake in a web browser on this machine")
    command.add_argument("--port", type=worker_count, default=8765, metavar="N",
                         help="port on 127.0.0.1; 0 takes any free one; default: 8765")  # fmt: skip
    _lake_option(command)


def _readers(commands: Any) -> None:
    """Add the commands that read a lake: `sql`, `status`, `why`, `datasets`, `quarantine`, `export`."""
    sql = _command(commands, "sql", "pairmill_read:answer_sql", "query the lake in SQL")
    sql.add_argument("query", metavar="SQL", help="a SELECT; it reads this lake and no other file")
    sql.add_argument("--allow-files", action="store_true",
                     help="any statement, on any file: COPY (SELECT …) TO 'pairs.csv'")  # fmt: skip
    status = _command(commands, "status", "pairmill_status:status", "show pending work, the writer and the last runs")
    status.add_argument("recipe", metavar="RECIPE", nargs="?", default="", help="default: those of the datasets here")
    _recipe_options(status)
    why = _command(
        commands, "why", "pairmill_why:why", "show an item's origin, its scores, and the rule that dropped it"
    )
    why.add_argument("item", metavar="ITEM", help="any id, sha256, address of a picture or page, or a sentence's text")
    why.add_argument("--dataset", default="", metavar="NAME[@V]", help="default: the newest one")
    datasets = _command(commands, "datasets", "pairmill_read:list_datasets", "list the published datasets")
    quarantine = _command(
        commands, "quarantine", "pairmill_read:list_quarantine", "list the items that failed, with the reason"
    )
    export = _command(commands, "export", "pairmill_read:write_export", "export a dataset as tars or Parquet")
    export.add_argument("dataset", metavar="NAME[@V]")
    export.add_argument("--to", required=True, metavar="URI", help="a new folder or s3://bucket/prefix")
    export.add_argument("--format", choices=("webdataset", "parquet"), default="webdataset")
    export.add_argument(
        "--captions", choices=("chosen", "all"), default="chosen", help="all: a column with every captioner's text"
    )
    for command in (sql, why, datasets, quarantine, export):
        _lake_option(command)
    for command in (sql, datasets, quarantine):
        command.add_argument("--format", choices=("table", "csv", "spreadsheet", "json"), default="table",
                             help="spreadsheet: CSV in which no text can be a formula")  # fmt: skip


def _command(commands: Any, name: str, function: str, text: str) -> argparse.ArgumentParser:
    """Add a command that calls ``function`` ('module:function'); ``text`` is its help."""
    about = text[0].upper() + text[1:] + "."
    command = commands.add_parser(name, description=about, epilog=f"example: {EXAMPLES[name]}", allow_abbrev=False)
    command.set_defaults(command=function, interrupted="stopped.", lasts=name not in READERS)
    return command


def _lake_option(command: argparse.ArgumentParser) -> None:
    """Add the ``--lake`` option."""
    default = os.environ.get("PAIRMILL_LAKE") or "lake"
    text = f"the lake's folder or its lake.yaml; default PAIRMILL_LAKE, then lake/ (now {default})"
    command.add_argument("--lake", default=default, metavar="DIR", help=text)
