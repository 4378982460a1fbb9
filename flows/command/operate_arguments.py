"""Declare the commands to operate a machine or a lake: `doctor`, `check`, `maintain`, `takedown`, `forget`, `up` …."""

from typing import Any

from pairmill.flows.command.option_types import above_0
from pairmill.flows.command.shared_options import (
    INTERRUPTED,
    add_command,
    format_option,
    lake_option,
    removal_options,
    setting_options,
    source_option,
)


def add_operate(commands: Any) -> None:
    """Add these commands to the parser."""
    _doctor(commands)
    _check(commands)
    _maintain(commands)
    _takedown(commands)
    _forget(commands)
    _up(commands)


def _doctor(commands: Any) -> None:
    """Add the `doctor` command."""
    command = add_command(
        commands, "doctor", "pairmill_doctor:doctor", "test this machine or a Ray cluster, and name the remedies"
    )
    command.add_argument("recipe", metavar="RECIPE", nargs="?", default="", help="also look for this recipe's models")
    command.add_argument("--ray", default="", metavar="ADDRESS",
                         help="examine each machine of a Ray cluster instead; 'auto' finds this machine's")  # fmt: skip
    source_option(command)
    lake_option(command)
    setting_options(command)
    format_option(command)


def _check(commands: Any) -> None:
    """Add the `check` command."""
    command = add_command(commands, "check", "pairmill_check:check", "compare a lake's rows with its files")
    command.set_defaults(interrupted="stopped. The same command again starts over; what it repaired is committed.")
    command.add_argument("--deep", action="store_true",
                         help="also hash every picture, and look for contents that were scored twice")  # fmt: skip
    command.add_argument("--repair", action="store_true",
                         help="make again what is damaged, remove what is doubled, finish removals")  # fmt: skip
    command.add_argument("--lose-rows", action="store_true",
                         help="let --repair remove rows that nothing can make again")  # fmt: skip
    lake_option(command)


def _maintain(commands: Any) -> None:
    """Add the `maintain` command."""
    command = add_command(
        commands, "maintain", "pairmill_maintain:maintain", "join small files, remove what nobody needs"
    )
    command.set_defaults(interrupted="stopped. The same command again goes on from there.")
    command.add_argument("--days", type=above_0, default=7, metavar="N",
                         help="keep snapshots of these days; dataset versions always stay; default: 7")  # fmt: skip
    lake_option(command)


def _takedown(commands: Any) -> None:
    """Add the `takedown` command."""
    command = add_command(commands, "takedown", "pairmill_takedown:takedown",
                          "remove pictures or documents from a lake, and keep them out")  # fmt: skip
    command.set_defaults(interrupted="stopped. The same command again, or `pairmill maintain`, finishes it.")
    command.add_argument("--url", action="append", default=[], metavar="URL",
                         help="a picture's or document's address; with a slash at its end, all below it")  # fmt: skip
    command.add_argument("--domain", action="append", default=[], metavar="HOST", help="a host, with its subdomains")
    command.add_argument("--image", action="append", default=[], metavar="FILE", help="this very picture")
    command.add_argument("--like", metavar="FILE", default="", help="pictures that look like this one; lists them")
    command.add_argument("--document", action="append", default=[], metavar="ID", help="a document, by its id")
    command.add_argument("--reason", default="asked by the owner", metavar="TEXT", help="stands in the report")
    listed = "do not ask; with --like, N is the number of pictures that it listed"
    removal_options(command, {"nargs": "?", "type": int, "const": -1, "metavar": "N", "help": listed})
    lake_option(command)


def _forget(commands: Any) -> None:
    """Add the `forget` command."""
    command = add_command(commands, "forget", "pairmill_forget:forget",
                          "remove the scores of one scorer from a lake, after saying what they decide")  # fmt: skip
    command.set_defaults(interrupted="stopped. If the scores are gone, `pairmill maintain` finishes it.")
    command.add_argument("--scorer", required=True, metavar="DIGEST", help="its digest in `scorers`, or how it begins")
    removal_options(command)
    lake_option(command)


def _up(commands: Any) -> None:
    """Add the `up` command."""
    command = add_command(commands, "up", "pairmill_up:up", "start Prefect's server, and serve the deployments there")
    command.set_defaults(interrupted=INTERRUPTED)
    command.add_argument("--port", type=above_0, default=0, metavar="N",
                         help="of the server; default: PREFECT_SERVER_API_PORT, else 4200, or a free one")  # fmt: skip
    lake_option(command)
    command.add_argument("--once", metavar="DEPLOYMENT", default="",
                         help="run this deployment (curate/demo), show its outcome, and stop")  # fmt: skip
    once = command.add_argument_group("with --once, for that run")
    source_option(once)
    setting_options(once)
