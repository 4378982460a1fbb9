"""Print rows as a table, CSV or JSON, as they arrive: a result may be larger than memory."""

import csv
import json
import sys
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.flows.api.question import json_value

SHOWN = 100
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def show(columns: list[str], rows: Iterable[tuple], form: str) -> None:
    """Print rows as they arrive, so that a result may be larger than memory; a table shows the first SHOWN only."""
    if form == "table":
        _show_table(columns, iter(rows))
    elif form in FIELDS:
        field = FIELDS[form]
        for_eyes = visible if sys.stdout.isatty() else str  # a file gets the data unchanged
        writer = csv.writer(sys.stdout, lineterminator="\n")
        for row in chain([columns], rows):
            values = map(field, row)
            writer.writerow([for_eyes(value) if isinstance(value, str) else value for value in values])
    else:
        lead = "["
        for row in rows:
            found = json.dumps(dict(zip(columns, map(json_value, row), strict=True)), ensure_ascii=False)
            print(lead, visible(found), sep="", end="")
            lead = ",\n "
        print("[]" if lead == "[" else "]")


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
    if value is None:
        return "NULL"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, datetime):
        return value.isoformat(" ", "seconds")
    return str(value)


def _csv(value: Any) -> Any:
    """Convert a value for CSV: NULL to an empty field, bytes to hex digits, a nested value to JSON."""
    if isinstance(value, list | dict):
        return json.dumps(json_value(value), ensure_ascii=False)
    return value.hex() if isinstance(value, bytes | bytearray) else value


def _spreadsheet(value: Any) -> Any:
    """Convert a value as `_csv` does; prefix an apostrophe to a text that a spreadsheet would run as a formula."""
    field = _csv(value)
    return f"'{field}" if isinstance(field, str) and field.startswith(FORMULA) else field


FIELDS = {"csv": _csv, "spreadsheet": _spreadsheet}
