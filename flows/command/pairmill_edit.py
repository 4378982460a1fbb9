"""Implement `pairmill edit`: change texts of a dataset's pairs, list the edits, undo them."""

import getpass
import uuid
from argparse import Namespace
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.edit_preview import EditPreview, preview_edit
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.catalog.upkeep.taken_items import pictures_of
from pairmill.catalog.write import acts
from pairmill.catalog.write.acts import Act
from pairmill.catalog.write.lease import writing
from pairmill.flows.api.asked_item import find_item

WAIT_SECONDS = 60.0
_WIDTH = 150  # characters of a text that are shown


def edit(args: Namespace) -> int:
    """Store one edit of a dataset's texts, undo one, or list all; ``--dry-run`` shows ten texts before and after."""
    given = [name for name in ("find", "regex", "prefix", "table", "picture") if getattr(args, name) is not None]
    if len(given) > 1 or (given and args.undo is not None):
        raise PairmillError("one edit at a time: --find, --regex, --prefix, --table, --picture, or --undo.")
    check_is_lake(args.lake)
    reads = args.dry_run or not (given or args.undo is not None)
    with create_or_open(args.lake, read_only=reads) as lake:
        dataset = find(lake, args.dataset)
        if args.undo is not None:
            with writing(lake, uuid.uuid4().hex, f"edit {dataset.name}", WAIT_SECONDS) as writer:
                undone = acts.undo(writer, dataset.name, args.undo, _account())
            print(visible(f"undone: {_line(undone)}. {_publishes(dataset)}"))
        elif given:
            _edit(lake, dataset, given[0], args)
        else:
            found = acts.acts_of(lake, dataset.name)
            for each in found:
                print(visible(f"{_line(each)}{'  (undone)' if each.is_undone else ''}"))
            if not found:
                print(
                    f"no edit of '{dataset.name}' yet; one is made by --find, --regex, --prefix, --table or --picture"
                )
    return 0


def _edit(lake: Lake, dataset: Dataset, kind: str, args: Namespace) -> None:
    """Prepare one edit, show what it changes, and store it unless this is a dry run.

    Raises PairmillError if it is not valid or changes no pair of the version.
    """
    field = _field(dataset, args.field)
    _prepare(lake, dataset, kind, field, args)
    found = preview_edit(lake, dataset, field)
    if not found.changed:
        what = {
            "picture": "that picture has this text already, or no pair",
            "table": "its pairs have these texts already",
        }
        why = what.get(kind, "case and spaces count, and earlier edits come first")
        raise PairmillError(f"{kind} changes no {field} of {dataset}: {why}. Nothing was stored.")
    if args.dry_run:
        _show(found, field, dataset)
        return
    with writing(lake, uuid.uuid4().hex, f"edit {dataset.name}", WAIT_SECONDS) as writer:
        act_id = acts.store(writer, dataset.name, _account())
    done = f"edit {act_id[:8]} changes {field} of {found.changed:,} pairs of {dataset}"
    print(visible(f"{done}. {_publishes(dataset)} Undo it: pairmill edit {dataset.name} --undo {act_id[:8]}"))


def _prepare(lake: Lake, dataset: Dataset, kind: str, field: str, args: Namespace) -> None:
    """Prepare the edit that the options name. Raise PairmillError if an option is missing or not valid."""
    if kind in ("find", "regex"):
        if args.replace is None:
            raise PairmillError(f"--{kind} needs --replace TEXT; --replace '' removes what was found.")
        act = "replace" if kind == "find" else kind
        acts.prepare_rule(lake, dataset.name, act, field, getattr(args, kind), args.replace)
    elif kind == "prefix":
        acts.prepare_rule(lake, dataset.name, kind, field, None, args.prefix)
    elif kind == "table":
        acts.prepare_table(lake, field, Path(args.table))
    else:
        if args.text is None:
            raise PairmillError("--picture needs --text TEXT; --text '' removes the text.")
        pictures = pictures_of(lake, find_item(lake, args.picture).images)
        if len(pictures) != 1:
            raise PairmillError(f"'{args.picture[:80]}' names {len(pictures)} pictures; name one by its sha256.")
        acts.prepare_text(lake, field, pictures, args.text)


def _field(dataset: Dataset, name: str) -> str:
    """Return ``name`` if the version's pairs have this column of text. Raise PairmillError otherwise."""
    names = text_columns.of_every_kind(dataset.n_texts)
    if name not in names:
        raise PairmillError(f"--field {name}: no text of a pair; {did_you_mean(name, names) or f'there are {names}.'}")
    return name


def _account() -> str:
    """Return the name of the account that runs this process, 'unknown' if it has none."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return "unknown"


def _show(found: EditPreview, field: str, dataset: Dataset) -> None:
    """Print the pairs that an edit changes."""
    print(visible(f"would change {field} of {found.changed:,} of {dataset.n_pairs:,} pairs of {dataset}"))
    for image_id, before, after in found.examples:
        print(visible(f"{image_id}\n  - {(before or '(no text)')[:_WIDTH]}\n  + {(after or '(no text)')[:_WIDTH]}"))


def _publishes(dataset: Dataset) -> str:
    """Return the sentence that says how an edit comes into a version."""
    return f"`pairmill recut {dataset.name}`, or the next run, publishes it."


def _line(act: Act) -> str:
    """Describe an act in one line."""
    value = act.value[:_WIDTH]
    what = {
        "edit": f"{act.pictures:,} new texts, such as '{value}'" if act.pictures > 1 else f"new text '{value}'",
        "prefix": f"prefix '{value}'",
    }.get(act.act, f"{act.act} '{(act.pattern or '')[:_WIDTH]}' by '{value}'")
    return f"{act.act_id[:8]}  {act.at:%Y-%m-%d %H:%M}  {act.who}  {act.field}: {what}"
