"""Build the parser of the command line: commands in groups, each with its options, an example and its function."""

import argparse

from pairmill.flows.command.command_parser import CommandParser, ShowVersion
from pairmill.flows.command.curate_arguments import add_curate
from pairmill.flows.command.operate_arguments import add_operate
from pairmill.flows.command.question_arguments import add_questions, asked_commands
from pairmill.flows.command.setup_arguments import add_setup
from pairmill.flows.command.version_arguments import add_versions

OF_VERSIONS = ("recut", "import-scores", "diff", "calibrate", "export", "tag", "drop")
GROUPS = {
    "curate": ("demo", "preflight", "run", "recaption"),
    "look": ("browse", "report", *(each for each in asked_commands() if each not in OF_VERSIONS)),
    "versions": OF_VERSIONS,
    "operate": ("doctor", "check", "maintain", "takedown", "forget", "up"),
    "set up": ("recipe", "mcp", "completion"),
}


def parser() -> argparse.ArgumentParser:
    """Build the parser of all commands."""
    top = CommandParser(prog="pairmill", description="Curate image-text datasets from web documents.")
    top.add_argument("--version", action=ShowVersion, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND", help="one of those below")
    for add in (add_curate, add_versions, add_operate, add_setup, add_questions):
        add(commands)
    top.epilog = _grouped({name: command.description or "" for name, command in commands.choices.items()})
    return top


def _grouped(descriptions: dict[str, str]) -> str:
    """List the commands by group, one a line."""
    lines, width = [], max(map(len, descriptions)) + 2
    for group, names in GROUPS.items():
        lines += [f"{group}:", *(f"  {name:<{width}}{descriptions[name].rstrip('.')}" for name in names), ""]
    return "\n".join([*lines, "`pairmill COMMAND --help` shows a command's options and an example."])
