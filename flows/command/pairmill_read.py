"""Implement `pairmill sql`, `datasets`, `quarantine` and `export`, the commands that read a lake."""

import csv
import json
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.pending import quarantine
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.sql.sql_answer import answer, answer_confined
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.write.version_names import version_names
from pairmill.flows.api.json_value import json_value
from pairmill.flows.api.words_in_sql import provide_words

if TYPE_CHECKING:
    from pairmill.tasks.release.gallery.concepts import Concept

SHOWN = 100
FORMULA = ("=", "+", "-", "@", "\t", "\r")


def answer_sql(args: Namespace) -> int:
    """Run one statement and print its rows: a table (the first SHOWN), CSV with a header line, or a JSON list.

    The statement can read the lake only; with ``--allow-files`` it can read and write all files of its user.
    """
    with create_or_open(args.lake, read_only=True) as lake:
        provide_words(lake, args.query)
        columns, rows = (answer if args.allow_files else answer_confined)(lake, args.query)
        if columns:
            show(columns, rows, args.format)
    return 0


def list_datasets(args: Namespace) -> int:
    """Print every version of every dataset."""
    with create_or_open(args.lake, read_only=True) as lake:
        found, names = datasets.published(lake), version_names(lake)
        weights = ["demo" if each.demo_weights(lake) else "" for each in found]
    if not found and args.format == "table":
        print("no dataset yet; make one with `pairmill run RECIPE`.")
        return 0
    columns = ["dataset", "tags", "pairs", "recall", "weights", "created", "amended", "content_digest", "run_id"]
    rows = [
        (str(each), " ".join(names.get((each.name, each.version), [])), each.n_pairs, each.recall, by, each.created_at,
         each.amended, each.content_digest, each.run_id)
        for each, by in zip(found, weights, strict=True)
    ]  # fmt: skip
    show(columns, rows, args.format)
    return 0


def list_quarantine(args: Namespace) -> int:
    """Print the number of quarantined items by reason, stage and source."""
    with create_or_open(args.lake, read_only=True) as lake:
        found = quarantine.fault_counts(lake)
    if not found and args.format == "table":
        print("nothing is in quarantine.")
        return 0
    show(["reason", "stage", "source", "items", "example", "detail"], found, args.format)
    return 0


def write_export(args: Namespace) -> int:
    """Export a dataset's files, and upload them if asked; take the lease only to record them in ``exports``."""
    from pairmill.flows.command.display import Display
    from pairmill.flows.command.terminal import console
    from pairmill.tasks.release.export.export import export, stem
    from pairmill.tasks.release.export.export_forms import OF_DOCUMENTS
    from pairmill.tasks.release.export.hub_push import check_push, push
    from pairmill.tasks.run.place.progress import Progress

    check_is_lake(args.lake)
    if args.push:
        check_push(args.push, args.to)
    with create_or_open(args.lake) as lake, Display(console()) as display:
        dataset = datasets.find(lake, args.dataset)

        def show(done: int, total: int) -> None:
            display.progress(Progress(f"export {dataset}", done, total, "rows"))

        place = (dataset.name, dataset.version, args.to, args.format)
        chosen = {"captions": args.captions, "text": args.text, "shuffle": args.shuffle, "grow": args.grow}
        found = export(lake, *place, progress=show, gaps=_gaps(lake, dataset, args.concepts), **chosen)
    unit = "documents" if args.format in OF_DOCUMENTS else "pairs"
    print(visible(f"{found.uri}: {found.rows:,} {unit} in {found.files:,} files, {found.bytes / 1e6:,.1f} MB"))
    if found.unordered:
        print(f"left out: {found.unordered:,} documents that an older Pairmill read, without the order of their texts "
              "and pictures; a run over their sources into a new lake records it")  # fmt: skip
    if args.push:
        print(visible(f"uploaded to {push(found.uri, stem(dataset), args.push)}"))
    return 0


def _gaps(lake: Lake, dataset: Dataset, names: str) -> "list[Concept]":
    """Count what the version has of each name in the file ``names``, by CLIP and by text; [] without a file."""
    if not names:
        return []
    from pairmill.flows.api.name_list import name_list
    from pairmill.flows.api.version_clip import version_clip  # torch, 3 s
    from pairmill.tasks.release.gallery.concepts import concepts

    return concepts(lake, dataset, name_list(names), version_clip(lake, dataset)[0].embed_texts)


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
