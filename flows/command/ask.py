"""Ask an open lake a command's question, and print the answer as text, table, CSV or JSON, or its JSON schema."""

import csv
import importlib
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.api.question import answer_schema, json_value, rows_of

# By command: the function of `answer_texts` that prints an answer which is no table; the line for no rows; the lines
# below a table.
PRINTERS = {"calibrate": "print_threshold", "diff": "print_diff", "status": "print_status", "why": "print_explanation"}
NO_ROWS = {
    "concepts": "no clusters: the version's recipe has no cap, or no picture has a vector.",
    "datasets": "no dataset yet; make one with `pairmill run RECIPE`.",
    "quarantine": "nothing is in quarantine.",
}
LEGENDS = {
    "concepts": "pictures: kept, by CLIP or of the cluster; sure: mean probability, by CLIP, that they show the name; "
    "texts: pairs that name it; dropped: of the same, most by "
    "this rule (dropped_by_rule).\nalone: of these, the ones that fail no other rule; half of them come back if the "
    "rule's threshold is `looser`. before: pictures of the cluster that reach the cap."
}
SHOWN = 100  # rows of a table
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def ask(args: Namespace) -> int:
    """Ask the lake the command's question, and print the answer; with ``--format schema`` print its JSON schema."""
    if args.format == "schema":
        print(json.dumps(answer_schema(args.question), indent=1))
        return 0
    with open_lake(args.lake) as lake:  # rows are read while they are printed
        print_answer(args, answer(args, lake))
    return 0


def answer(args: Namespace, lake: OpenLake) -> Any:
    """Ask the lake the command's question with the command line's arguments; return the answer."""
    given = {each.name: getattr(args, each.name) for each in args.question.parameters}
    if given.get("names"):
        given["names"] = read_names(given["names"])
    return args.question.ask(lake, **given)


def print_answer(args: Namespace, found: Any) -> None:
    """Print an answer in the command's ``--format``."""
    command, form = args.question.command, args.format
    if not args.question.is_list:
        if form == "json":
            print(visible(json.dumps(json_value(found), ensure_ascii=False)))
            return
        printers = importlib.import_module("pairmill.flows.command.answer_texts")
        getattr(printers, PRINTERS[command])(found)
        return
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


def read_names(path: str) -> list[str]:
    """Read a file of names, one a line; return the distinct names in order, without blank lines.

    Raises PairmillError if the file cannot be read, is no UTF-8 text, or holds no name.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise PairmillError(f"'{path}' cannot be read as a list of names ({error}); give a text file.") from error
    names = list(dict.fromkeys(line.strip() for line in lines if line.strip()))
    if not names:
        raise PairmillError(f"'{path}' holds no name; write one a line.")
    return names


def show(columns: list[str], rows: Iterable[tuple], form: str) -> None:
    """Print rows as 'table' (the first SHOWN), 'csv', 'spreadsheet' or 'json', as they arrive: memory stays small."""
    if form == "table":
        _show_table(columns, iter(rows))
    elif form == "json":
        lead = "["
        for row in rows:
            found = json.dumps(dict(zip(columns, map(json_value, row), strict=True)), ensure_ascii=False)
            print(lead, visible(found), sep="", end="")
            lead = ",\n "
        print("[]" if lead == "[" else "]")
    else:
        for_eyes = visible if sys.stdout.isatty() else str  # a file gets the data unchanged
        writer = csv.writer(sys.stdout, lineterminator="\n")
        for row in chain([columns], rows):
            values = [_field(value, form == "spreadsheet") for value in row]
            writer.writerow([for_eyes(value) if isinstance(value, str) else value for value in values])


def _show_table(columns: list[str], rows: Iterator[tuple]) -> None:
    """Print the first SHOWN rows as a table, with numbers aligned right, and a note if there are more."""
    from pairmill.flows.command.terminal import cell, console, shown, table  # rich, 0.1 s

    first = list(islice(rows, SHOWN))
    made = table("", [shown(name) for name in columns], [])
    for n, column in enumerate(made.columns):
        column.justify = "right" if any(isinstance(row[n], int | float) for row in first) else "left"
    for row in first:
        made.add_row(*(cell(_text(value)) for value in row))
    screen = console()
    screen.print(made)
    if next(rows, None) is not None:
        screen.print(f"… the first {SHOWN} rows; --format csv or json gives all", style="dim")


def _text(value: Any) -> str:
    """Format a value for a table cell."""
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return "NULL" if value is None else str(value)


def _field(value: Any, is_spreadsheet: bool) -> Any:
    """Convert a value for CSV: NULL to '', bytes to hex, nested to JSON; a spreadsheet's formula gets an apostrophe."""
    if isinstance(value, list | dict):
        value = json.dumps(json_value(value), ensure_ascii=False)
    elif isinstance(value, bytes | bytearray):
        value = value.hex()
    is_formula = is_spreadsheet and isinstance(value, str) and value.startswith(FORMULA)
    return f"'{value}" if is_formula else value
