"""Ask an open lake a question of the command line, and print the answer: as text, rows, or JSON with its schema."""

import importlib
import json
from argparse import Namespace
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.api.question import answer_schema, json_value, rows_of
from pairmill.flows.command.row_output import show

# By command: the function that prints an answer which is no table; the line for no rows; the lines below a table.
PRINTERS = {
    "calibrate": "pairmill_calibrate:print_threshold",
    "diff": "pairmill_diff:print_diff",
    "status": "status_text:print_status",
    "why": "why_text:print_explanation",
}
NO_ROWS = {
    "clusters": "no clusters: the version's recipe has no cap, or no picture has a vector.",
    "datasets": "no dataset yet; make one with `pairmill run RECIPE`.",
    "quarantine": "nothing is in quarantine.",
}
LEGENDS = {
    "concepts": "pictures: kept, by CLIP; texts: pairs that name it; dropped: by CLIP, most by this rule "
    "(dropped_by_rule).\nalone: of these, the ones that fail no other rule; half of them come back if the rule's "
    "threshold is `looser`."
}


def ask(args: Namespace) -> int:
    """Ask, and print the answer."""
    if args.format == "schema":
        print(json.dumps(answer_schema(args.question), indent=1))
        return 0
    with open_lake(args.lake) as lake:  # rows are read while they are printed
        print_answer(args, answer(args, lake))
    return 0


def answer(args: Namespace, lake: OpenLake) -> Any:
    """Return the answer to the command's question, with the arguments of the command line."""
    given = {each.name: getattr(args, each.name) for each in args.question.parameters}
    if "names" in given:
        given["names"] = name_list(given["names"])
    return args.question.ask(lake, **given)


def print_answer(args: Namespace, found: Any) -> None:
    """Print an answer in the command's ``--format``."""
    command, form = args.question.command, args.format
    if args.question.is_list:
        rows = rows_of(args.question, found)
        if form == "table" and not found:
            print(NO_ROWS.get(command, "nothing."))
        elif rows.columns:
            values = rows.rows
            if form == "table" and command != "sql":
                values = [tuple("·" if value is None else value for value in row) for row in values]
            show(rows.columns, values, form)
            if form == "table" and command in LEGENDS:
                print(LEGENDS[command])
    elif form == "json":
        print(visible(json.dumps(json_value(found), ensure_ascii=False)))
    else:
        module, _, function = PRINTERS[command].partition(":")
        getattr(importlib.import_module(f"pairmill.flows.command.{module}"), function)(found)


def name_list(path: str) -> list[str]:
    """Return the distinct names in the file's order; blank lines are left out.

    Raises:
        PairmillError: The file cannot be read, is no UTF-8 text, or holds no name.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PairmillError(f"'{path}' cannot be read as a list of names ({error}); give a text file.") from error
    names = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not names:
        raise PairmillError(f"'{path}' holds no name; write one a line.")
    return names
