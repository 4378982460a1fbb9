"""Make the page of all commands from the parser of the command line."""

import argparse
from typing import Any, cast

from infra.site.markdown import code, table
from pairmill.flows.command.command_parser import EXAMPLE
from pairmill.flows.command.commands import commands_by_group, parser

INTRO = """# Commands

`pairmill COMMAND --help` prints the same. Exit status: 0, 1 for an error with a remedy, 2 for a wrong command line, 130
when interrupted.
"""


def commands_page() -> str:
    """Return the page."""
    top = parser()
    action = next(each for each in top._actions if isinstance(each, argparse._SubParsersAction))
    found = cast("dict[str, argparse.ArgumentParser]", action.choices)
    parts = [INTRO]
    for group, commands in commands_by_group().items():
        parts.append(f"## {group.capitalize()}\n")
        parts += [_command(each.name, found[each.name]) for each in commands]
    return "\n".join(parts)


def _command(name: str, command: argparse.ArgumentParser) -> str:
    """Return the section of one command."""
    lines = [f"### {name}\n", f"{command.description or ''}\n"]
    epilog = command.epilog or ""
    if epilog.startswith(EXAMPLE):
        lines.append(f"```\n{epilog.removeprefix(EXAMPLE)}\n```\n")
    rows = [row for each in command._actions if (row := _row(each))]
    if rows:
        lines.append(table(["argument", "default", "meaning"], rows) + "\n")
    return "\n".join(lines)


def _row(action: Any) -> tuple[str, str, str] | None:
    """Return the row of one argument; None for ``--help``."""
    if isinstance(action, argparse._HelpAction):
        return None
    named = ", ".join(action.option_strings) or action.metavar or action.dest
    values = "" if action.nargs == 0 else "\\|".join(map(str, action.choices)) if action.choices else action.metavar
    shown = f"{named} {values}" if action.option_strings and values else named
    silent = action.default in (None, False, "", [], 0) or action.dest == "lake"
    default = "required" if action.required and action.option_strings else "" if silent else code(action.default)
    about = (action.help or "").replace(" (now %(default)s)", "") % {"default": action.default}
    return code(shown.replace("\\|", " or ")), default, about
