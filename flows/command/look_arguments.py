"""Declare the commands that look at a lake, by pages: `browse` and `report`."""

from typing import Any

from pairmill.flows.command.option_types import worker_count
from pairmill.flows.command.shared_options import (
    add_command,
    lake_option,
)


def add_look(commands: Any) -> None:
    """Add these commands to the parser."""
    _browse(commands)
    _report(commands)


def _browse(commands: Any) -> None:
    """Add the `browse` command."""
    command = add_command(commands, "browse", "pairmill_browse:browse", "show a lake in a web browser on this machine")
    command.add_argument("--port", type=worker_count, default=8765, metavar="N",
                         help="port on 127.0.0.1; 0 takes any free one; default: 8765")  # fmt: skip
    lake_option(command)


def _report(commands: Any) -> None:
    """Add the `report` command."""
    report = add_command(commands, "report", "pairmill_report:report", "write the HTML report of a dataset version")
    report.add_argument("dataset", metavar="NAME[@V]")
    report.add_argument("--to", default="", metavar="FILE", help="also copy it to a file or folder")
    report.add_argument("--open", action="store_true", help="show it in a web browser")
    lake_option(report)
