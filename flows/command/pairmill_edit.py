"""Implement `pairmill edit`: change texts of a dataset's pairs, list the edits, undo them."""

from argparse import Namespace
from dataclasses import fields

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.acts import Act
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.api.text_edits import TextEdit, edit_texts, preview_text_edit, undo_edit

_WIDTH = 150  # characters of a text that are shown


def edit(args: Namespace) -> int:
    """Store one edit of a dataset's texts, undo one, or list all; ``--dry-run`` shows ten texts before and after."""
    asked = TextEdit(**{each.name: getattr(args, each.name) for each in fields(TextEdit)})
    if len(asked.kinds) + (args.undo is not None) > 1:
        raise PairmillError("one edit at a time: --find, --regex, --prefix, --table, --picture, or --undo.")
    check_is_lake(args.lake)
    stores = bool(asked.kinds or args.undo is not None) and not args.dry_run
    with create_or_open(args.lake, read_only=not stores) as lake:
        name = args.dataset.partition("@")[0]
        publishes = f"`pairmill recut {name}`, or the next run, publishes it."
        if not asked.kinds and (args.undo is None or args.dry_run):
            edits = OpenLake(lake).edits(args.dataset)
            found = [f"{_line(each)}{'  (undone)' if each.is_undone else ''}" for each in edits]
            print(visible("\n".join(found) or f"no edit of '{name}' yet; `pairmill edit --help` shows how to make one"))
        elif args.undo is not None:
            print(visible(f"undone: {_line(undo_edit(lake, args.dataset, args.undo))}. {publishes}"))
        elif args.dry_run:
            of, shown = preview_text_edit(lake, args.dataset, asked)
            print(visible(f"would change {asked.field} of {shown.changed:,} of {of.n_pairs:,} pairs of {of}"))
            for image_id, *both in shown.examples:
                before, after = ((text or "(no text)")[:_WIDTH] for text in both)
                print(visible(f"{image_id}\n  - {before}\n  + {after}"))
        else:
            act_id, of, shown = edit_texts(lake, args.dataset, asked)
            done = f"edit {act_id[:8]} changes {asked.field} of {shown.changed:,} pairs of {of}"
            print(visible(f"{done}. {publishes} Undo it: pairmill edit {name} --undo {act_id[:8]}"))
    return 0


def _line(act: Act) -> str:
    """Describe an act in one line."""
    return f"{act.act_id[:8]}  {act.at:%Y-%m-%d %H:%M}  {act.who}  {act}"
