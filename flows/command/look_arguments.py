"""Declare the commands that look at a lake, such as `browse`, `sql`, `status`, `why`, `report` and `clusters`."""

from typing import Any

from pairmill.flows.command.option_types import above_0, worker_count
from pairmill.flows.command.shared_options import (
    add_command,
    format_option,
    lake_option,
)


def add_look(commands: Any) -> None:
    """Add these commands to the parser."""
    _browse(commands)
    _readers(commands)


def _browse(commands: Any) -> None:
    """Add the `browse` command."""
    command = add_command(commands, "browse", "pairmill_browse:browse", "show a lake in a web browser on this machine")
    command.add_argument("--port", type=worker_count, default=8765, metavar="N",
                         help="port on 127.0.0.1; 0 takes any free one; default: 8765")  # fmt: skip
    lake_option(command)


def _readers(commands: Any) -> None:
    """Add the commands that read a lake: `sql`, `status`, `why`, `report`, `clusters` and others."""
    sql = add_command(commands, "sql", "pairmill_read:answer_sql", "query the lake in SQL")
    sql.add_argument("query", metavar="SQL", help="a SELECT; it reads this lake and no other file")
    sql.add_argument("--allow-files", action="store_true",
                     help="any statement, on any file: COPY (SELECT …) TO 'pairs.csv'")  # fmt: skip
    status = add_command(
        commands, "status", "pairmill_status:status", "show what a lake holds, who writes, and the last runs"
    )
    lake_option(status)
    why = add_command(
        commands, "why", "pairmill_why:why", "show an item's origin, its scores, and the rule that dropped it"
    )
    why.add_argument("item", metavar="ITEM", help="any id, sha256, address of a picture or page, or a sentence's text")
    why.add_argument("--dataset", default="", metavar="NAME[@V]", help="default: the newest one")
    clusters = add_command(
        commands,
        "clusters",
        "pairmill_clusters:clusters",
        "name clusters, with sizes before and after the cap",
    )
    clusters.add_argument("dataset", metavar="NAME[@V]")
    clusters.add_argument("--most", type=above_0, default=30, metavar="N", help="how many, largest first; default: 30")
    concepts = add_command(
        commands,
        "concepts",
        "pairmill_concepts:concepts",
        "count pairs of each name of a list, and what drops the rest",
    )
    concepts.add_argument("names", metavar="NAMES.txt", help="class names, one a line")
    concepts.add_argument("--dataset", required=True, metavar="NAME[@V]", help="the version to count in")
    datasets = add_command(commands, "datasets", "pairmill_read:list_datasets", "list the published datasets")
    quarantine = add_command(
        commands, "quarantine", "pairmill_read:list_quarantine", "list the items that failed, with the reason"
    )
    report = add_command(commands, "report", "pairmill_report:report", "write the HTML report of a dataset version")
    report.add_argument("dataset", metavar="NAME[@V]")
    report.add_argument("--to", default="", metavar="FILE", help="also copy it to a file or folder")
    report.add_argument("--open", action="store_true", help="show it in a web browser")
    for command in (sql, why, clusters, concepts, datasets, quarantine, report):
        lake_option(command)
    for command in (sql, clusters, concepts, datasets, quarantine):
        format_option(command)
