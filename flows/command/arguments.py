"""Declare the command line: commands in groups, each with its options, an example and the function that it calls."""

import argparse
import os
from typing import Any

from pairmill.flows.command.command_parser import EXAMPLE, CommandParser, ShowVersion
from pairmill.flows.command.option_types import above_0, amount, cost, model_sizes, network, time_of_day, worker_count
from pairmill.flows.command.side_commands import add_mcp, add_recipe, add_recut

GROUPS = {
    "curate": ("demo", "run", "recaption", "fetch", "replay"),
    "look": ("status", "browse", "report", "sql", "why", "datasets", "quarantine"),
    "versions": ("recut", "export", "tag", "drop", "verify"),
    "operate": ("doctor", "check", "maintain", "up", "schedule"),
    "set up": ("recipe", "conform", "check-model", "serve-model", "mcp", "completion"),
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
    "report": "pairmill report 30m@3 --open",
    "recut": "pairmill recut 30m@3 --set balance.cap=20",
    "export": "pairmill export 30m --to out/tars",
    "tag": "pairmill tag 30m@3 release-1",
    "drop": "pairmill drop 30m@2",
    "verify": "pairmill verify 30m@3",
    "up": "pairmill up --once curate/demo",
    "schedule": "pairmill schedule 30m --every day --source pages",
    "doctor": "pairmill doctor 30m",
    "check": "pairmill check --lake lake --repair",
    "maintain": "pairmill maintain --lake lake",
    "completion": "pairmill completion bash",
    "check-model": "pairmill check-model hf:HuggingFaceTB/SmolVLM2-2.2B-Instruct --processor '{tiles: 1}'",
    "conform": "pairmill conform realsyn.parquet 30m",
    "recipe": "pairmill recipe show 30m > mine.yaml",
    "mcp": "pairmill mcp --lake lake",
    "serve-model": "pairmill serve-model hf:Qwen/Qwen2.5-VL-3B-Instruct --env engine",
}
LIMITS = {
    "hours": "hours by the clock",
    "gpu-hours": "hours of work on GPUs, times the GPUs of a worker",
    "rows": "rows written, over all tables",
    "gigabytes": "gigabytes written to the lake",
}
# Commands that exit when their output is closed; the others continue.
READERS = ("sql", "status", "why", "report", "datasets", "quarantine", "doctor", "recipe", "completion")
INTERRUPTED = "stopped. What was finished is committed; the same command again goes on from there."


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    top = CommandParser(prog="pairmill", description="Curate image-text datasets from web documents.")
    top.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", help="one of those below")
    _demo(commands)
    _run(commands)
    _recaption(commands)
    _doctor(commands)
    _check(commands)
    _maintain(commands)
    _up(commands)
    _schedule(commands)
    _serve_model(commands)
    _check_model(commands)
    _conform(commands)
    _again(commands)
    _browse(commands)
    _readers(commands)
    add_recut(commands, _command, _lake_option)
    _versions(commands)
    add_recipe(commands, _command)
    add_mcp(commands, _command, _lake_option)
    _completion(commands)
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
    _export_format_option(command)
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
    limits = command.add_argument_group("where it stops, at a commit; the same command again goes on")
    for name, meaning in LIMITS.items():
        limits.add_argument(f"--max-{name}", type=amount, default=0.0, metavar="N", help=f"the most {meaning}")
    limits.add_argument("--wait", type=amount, default=0.0, metavar="MINUTES",
                        help="wait so long while another run writes to the lake")  # fmt: skip
    limits.add_argument("--stall-minutes", type=amount, default=60.0, metavar="N",
                        help="end workers of a stage that finishes no row for so long; default: 60")  # fmt: skip
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
    _source_option(command)
    _lake_option(command)
    _setting_options(command)


def _source_option(command: Any) -> None:
    """Add ``--source`` to a command or a group of options."""
    places = "folder, file, s3://bucket/prefix or https://host/list, also as FORMAT:PLACE; may repeat"
    command.add_argument("--source", action="append", default=[], metavar="URI", help=places)


def _setting_options(command: Any) -> None:
    """Add the options that change a recipe's settings: ``--models`` and ``--set``."""
    command.add_argument("--models", choices=("recipe", "demo"), default="recipe",
                         help="'demo' swaps in the small models that ship")  # fmt: skip
    _set_option(command)


def _set_option(command: Any) -> None:
    """Add ``--set``."""
    command.add_argument("--set", action="append", default=[], metavar="KEY=VALUE",
                         help="override a setting of the recipe: --set balance.cap=20; may repeat")  # fmt: skip


def _completion(commands: Any) -> None:
    """Add the `completion` command."""
    command = _command(commands, "completion", "completion:completion", "print a shell's code for completion at Tab")
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help='bash, zsh: eval "$(pairmill completion bash)"')


def _doctor(commands: Any) -> None:
    """Add the `doctor` command."""
    command = _command(commands, "doctor", "pairmill_doctor:doctor", "test this machine, and name the remedies")
    command.add_argument("recipe", metavar="RECIPE", nargs="?", default="", help="also look for this recipe's models")
    _lake_option(command)
    _setting_options(command)
    _format_option(command)


def _check(commands: Any) -> None:
    """Add the `check` command."""
    command = _command(commands, "check", "pairmill_check:check", "compare a lake's rows with its files")
    command.set_defaults(interrupted="stopped. The same command again starts over; what it repaired is committed.")
    command.add_argument("--deep", action="store_true",
                         help="also hash every picture, and look for contents that were scored twice")  # fmt: skip
    command.add_argument("--repair", action="store_true",
                         help="remove what is damaged or doubled, and make it again where sources allow")  # fmt: skip
    _lake_option(command)


def _maintain(commands: Any) -> None:
    """Add the `maintain` command."""
    command = _command(commands, "maintain", "pairmill_maintain:maintain", "join small files, remove what nobody needs")
    command.set_defaults(interrupted="stopped. The same command again goes on from there.")
    command.add_argument("--days", type=above_0, default=7, metavar="N",
                         help="keep snapshots of these days; dataset versions always stay; default: 7")  # fmt: skip
    _lake_option(command)


def _up(commands: Any) -> None:
    """Add the `up` command."""
    command = _command(commands, "up", "pairmill_up:up", "start Prefect's server, its deployments and a worker")
    command.set_defaults(interrupted=INTERRUPTED)
    command.add_argument("--port", type=above_0, default=0, metavar="N",
                         help="of the server; default: PREFECT_SERVER_API_PORT, else 4200, or a free one")  # fmt: skip
    _lake_option(command)
    command.add_argument("--once", metavar="DEPLOYMENT", default="",
                         help="run this deployment (curate/demo), show its outcome, and stop")  # fmt: skip
    once = command.add_argument_group("with --once, for that run")
    _source_option(once)
    _setting_options(once)


def _schedule(commands: Any) -> None:
    """Add the `schedule` command."""
    command = _command(commands, "schedule", "pairmill_schedule:schedule", "run a recipe regularly, or list schedules")
    command.add_argument("recipe", metavar="RECIPE", nargs="?", default="", help="without it, all schedules are listed")
    command.add_argument("--every", choices=("hour", "day", "week"), default="", help="set the schedule")
    command.add_argument("--at", type=time_of_day, metavar="HH:MM", help="time in UTC; default: 02:00")
    command.add_argument("--off", action="store_true", help="remove the schedule of this recipe and lake")
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


def _check_model(commands: Any) -> None:
    """Add the `check-model` command."""
    command = _command(commands, "check-model", "pairmill_check_model:check_model",
                       "show what a captioner costs and whether its decoding is captured")  # fmt: skip
    command.add_argument("spec", metavar="MODEL", help="hf:NAME, or a folder with a model of transformers")
    command.add_argument("--processor", default="{}", metavar="SETTINGS",
                         help="picture settings as of a recipe's captioner, such as '{tiles: 1}'")  # fmt: skip
    command.add_argument("--precision", choices=("bf16", "fp32"), default="bf16", help="default: bf16")
    command.add_argument("--side", type=above_0, default=448, metavar="PX",
                         help="shorter side of the pictures; default: 448")  # fmt: skip
    command.add_argument("--max-tokens", type=above_0, default=128, metavar="N",
                         help="the longest answer; default: 128")  # fmt: skip


def _conform(commands: Any) -> None:
    """Add the `conform` command."""
    command = _command(commands, "conform", "pairmill_conform:conform",
                       "count the released texts that a recipe's sentence rules would drop")  # fmt: skip
    command.add_argument(
        "file", metavar="FILE", help="a table, or a pattern of tables, with the columns text1, text2, text3"
    )
    command.add_argument("recipe", metavar="RECIPE", nargs="?", default="30m", help="default: 30m")
    command.add_argument("--rows", type=above_0, default=10_000, metavar="N",
                         help="rows drawn at random; default: 10,000")  # fmt: skip
    _setting_options(command)


def _browse(commands: Any) -> None:
    """Add the `browse` command."""
    command = _command(commands, "browse", "pairmill_browse:browse", "show a lake in a web browser on this machine")
    command.add_argument("--port", type=worker_count, default=8765, metavar="N",
                         help="port on 127.0.0.1; 0 takes any free one; default: 8765")  # fmt: skip
    _lake_option(command)


def _readers(commands: Any) -> None:
    """Add the commands that read a lake: `sql`, `status`, `why`, `report`, `datasets`, `quarantine`."""
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
    report = _command(commands, "report", "pairmill_report:report", "write the HTML report of a dataset version")
    report.add_argument("dataset", metavar="NAME[@V]")
    report.add_argument("--to", default="", metavar="FILE", help="also copy it to a file or folder")
    report.add_argument("--open", action="store_true", help="show it in a web browser")
    for command in (sql, why, datasets, quarantine, report):
        _lake_option(command)
    for command in (sql, datasets, quarantine):
        _format_option(command)


def _versions(commands: Any) -> None:
    """Add the commands on dataset versions: `export`, `tag`, `drop`, `verify`."""
    export = _command(commands, "export", "pairmill_read:write_export", "export a dataset as tars or Parquet")
    export.add_argument("dataset", metavar="NAME[@V]")
    export.add_argument("--to", required=True, metavar="URI", help="a new folder or s3://bucket/prefix")
    _export_format_option(export)
    export.add_argument(
        "--captions", choices=("chosen", "all"), default="chosen", help="all: a column with every captioner's text"
    )
    tag = _command(commands, "tag", "pairmill_versions:tag", "name a dataset version; NAME@TAG then means it")
    tag.add_argument("dataset", metavar="NAME[@V]")
    tag.add_argument("name", metavar="TAG", help="such as release-1; the dataset's own")
    tag.add_argument("--remove", action="store_true", help="remove this name of the version instead")
    drop = _command(commands, "drop", "pairmill_versions:drop", "delete a dataset version; scores and exports stay")
    drop.add_argument("dataset", metavar="NAME@V", help="the very version, by its number")
    drop.add_argument("--yes", action="store_true", help="do not ask")
    verify = _command(commands, "verify", "pairmill_verify:verify",
                      "compute a version's decisions a second time, and compare")  # fmt: skip
    verify.add_argument("dataset", metavar="NAME[@V]")
    for command in (export, tag, drop, verify):
        _lake_option(command)


def _format_option(command: argparse.ArgumentParser) -> None:
    """Add ``--format``."""
    command.add_argument("--format", choices=("table", "csv", "spreadsheet", "json"), default="table",
                         help="spreadsheet: CSV in which no text can be a formula")  # fmt: skip


def _command(commands: Any, name: str, function: str, text: str) -> argparse.ArgumentParser:
    """Add a command that calls ``function`` ('module:function'); ``text`` is its help."""
    about = text[0].upper() + text[1:] + "."
    command = commands.add_parser(name, description=about, epilog=f"{EXAMPLE}{EXAMPLES[name]}", allow_abbrev=False)
    command.set_defaults(command=function, parser=command, interrupted="stopped.", lasts=name not in READERS)
    return command


def _export_format_option(command: argparse.ArgumentParser) -> None:
    """Add the ``--format`` of an export."""
    command.add_argument("--format", choices=("webdataset", "parquet", "texts"), default="webdataset",
                         help="webdataset: tars of .jpg, .txt and .json; parquet: tables with the pictures; "
                         "texts: the same without; default: webdataset")  # fmt: skip


def _lake_option(command: argparse.ArgumentParser) -> None:
    """Add the ``--lake`` option."""
    default = os.environ.get("PAIRMILL_LAKE") or "lake"
    text = f"the lake's folder or its lake.yaml; default PAIRMILL_LAKE, then lake/ (now {default})"
    command.add_argument("--lake", default=default, metavar="DIR", help=text)
