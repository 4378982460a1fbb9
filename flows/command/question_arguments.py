"""Build the commands that ask an open lake: arguments, options and help follow from the method that answers."""

import argparse
import inspect
from typing import Any

from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.api.question import Question, questions_of
from pairmill.flows.command.option_types import above_0, numbers, share
from pairmill.flows.command.shared_options import add_command, lake_option

METAVARS = {"dataset": "NAME[@V]", "names": "NAMES.txt", "query": "SQL", "wrong": "SHARE", "confidence": "SHARE",
            "candidates": "NUMBERS", "most": "N"}  # fmt: skip
TYPES = {"wrong": share, "confidence": share, "candidates": numbers, "most": above_0}
SHARES = ("wrong", "confidence")


def asked_commands() -> list[str]:
    """Return the commands of all questions that have one."""
    return [each.command for each in questions_of(OpenLake) if each.command]


def add_questions(commands: Any) -> None:
    """Add the commands of questions that have no further options."""
    for name in asked_commands():
        if name not in commands.choices:
            add_question(commands, name)


def add_question(commands: Any, name: str, function: str = "ask:ask") -> argparse.ArgumentParser:
    """Add the command of a question; ``function`` asks and prints."""
    asked = next(each for each in questions_of(OpenLake) if each.command == name)
    command = add_command(commands, name, function, asked.about.rstrip("."), asked.example)
    command.set_defaults(question=asked, lasts=False)
    for each in asked.parameters:
        _add_argument(command, each, asked)
    lake_option(command)
    forms = ("table", "csv", "spreadsheet", "json", "schema") if asked.is_list else ("table", "json", "schema")
    about = "spreadsheet: CSV in which no text can be a formula; " if asked.is_list else ""
    command.add_argument("--format", choices=forms, default="table", help=f"{about}schema: that of the JSON")
    return command


def _add_argument(command: argparse.ArgumentParser, of: inspect.Parameter, asked: Question) -> None:
    """Add an argument of a method: required ones are positional, unless they are among the question's options."""
    about, is_required = asked.help_of(of.name), of.default is of.empty
    about = about[:1].lower() + about[1:].rstrip(".").replace("%", "%%") or None
    if of.annotation is bool:
        command.add_argument(f"--{of.name.replace('_', '-')}", action="store_true", help=about)
        return
    shape = {"metavar": METAVARS.get(of.name, of.name.upper()), "type": TYPES.get(of.name, str)}
    if is_required and of.name not in asked.options:
        command.add_argument(of.name, help=about, **shape)
        return
    if of.default and not is_required:
        about = f"{about}; default: {f'{of.default:.0%}%' if of.name in SHARES else of.default}"
    default = None if is_required else of.default
    command.add_argument(f"--{of.name}", required=is_required, default=default, help=about, **shape)
