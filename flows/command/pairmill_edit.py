"""Implement `pairmill edit`: change texts of pairs, leave out, keep or tag pictures; list such acts, undo them."""

from argparse import Namespace
from dataclasses import fields

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.acts import VERDICTS, Act
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.api.picture_acts import act_on, fates_named, list_acts, undo_act
from pairmill.flows.api.text_edits import TextEdit, edit_texts, preview_text_edit

_WIDTH = 150  # characters of a text that are shown
_WAITS = " It waits for the run that writes to the lake, which stores it with its next commit."


def edit(args: Namespace) -> int:
    """Store one edit or verdict, undo one, or list all; ``--dry-run`` shows what it would change."""
    verdicts = [name for name in VERDICTS if getattr(args, name)]
    asked = TextEdit(**{each.name: getattr(args, each.name) for each in fields(TextEdit) if hasattr(args, each.name)})
    kinds = [each for each in asked.kinds if not (verdicts and each == "picture")]
    if len(kinds) + len(verdicts) + (args.undo is not None) > 1:
        names = "--find, --regex, --prefix, --table, --picture with --text, --leave-out, --keep, --tag, --untag"
        raise PairmillError(f"one edit at a time: {names}, or --undo.")
    check_is_lake(args.lake)
    stores = bool(kinds or verdicts or args.undo is not None) and not args.dry_run
    with create_or_open(args.lake, read_only=not stores) as lake:
        name = args.dataset.partition("@")[0]
        publishes = f"`pairmill recut {name}`, or the next run, publishes it."
        if verdicts:
            print(visible(_verdict(lake, args, verdicts[0], publishes)))
        elif not kinds and (args.undo is None or args.dry_run):
            print(visible("\n".join(_listed(lake, OpenLake(lake).dataset(args.dataset).version.name))))
        elif args.undo is not None:
            act, waits = undo_act(lake, args.dataset, args.undo)
            print(visible(f"undone: {_line(act)}. {publishes}{_WAITS if waits else ''}"))
        elif args.dry_run:
            of, shown = preview_text_edit(lake, args.dataset, asked)
            print(visible(f"would change {asked.field} of {shown.changed:,} of {of.n_pairs:,} pairs of {of}"))
            for image_id, *both in shown.examples:
                before, after = ((text or "(no text)")[:_WIDTH] for text in both)
                print(visible(f"{image_id}\n  - {before}\n  + {after}"))
        else:
            act_id, waits, of, shown = edit_texts(lake, args.dataset, asked)
            done = f"edit {act_id[:8]} changes {asked.field} of {shown.changed:,} pairs of {of}"
            undo = f" Undo it: pairmill edit {name} --undo {act_id[:8]}"
            print(visible(f"{done}. {publishes}{_WAITS if waits else ''}{undo}"))
    return 0


def _verdict(lake: Lake, args: Namespace, act: str, publishes: str) -> str:
    """Store a verdict on the pictures that the arguments name, unless ``--dry-run``; return a line about it."""
    word = getattr(args, act) if act in ("tag", "untag") else ""
    fates = fates_named(lake, args.dataset, args.picture, args.list, args.where)
    found = act_on(lake, args.dataset, act, fates, word, args.dry_run)
    what = act.replace("_", " ") + (f" '{word}'" if word else "")
    pictures = f"{found.pictures:,} picture{'' if found.pictures == 1 else 's'}"
    on = f"{what}: {pictures}, {found.pairs:,} of them in pairs of {found.dataset}"
    if args.dry_run:
        return f"would {on}"
    undo = f" Undo it: pairmill edit {found.dataset.name} --undo {found.act_id[:8]}"
    return f"{on} (act {found.act_id[:8]}). {publishes}{_WAITS if found.is_waiting else ''}{undo}"


def _listed(lake: Lake, name: str) -> list[str]:
    """Return a line for each act on a dataset, and for each file of the queue that is damaged."""
    acts, damaged = list_acts(lake, name)
    found = [_line(each) for each in acts] or [f"no edit of '{name}' yet; `pairmill edit --help` shows how to make one"]
    return found + [f"{path} cannot be read, so what it holds is not stored; remove it." for path in damaged]


def _line(act: Act) -> str:
    """Describe an act in one line."""
    state = ["undone"] * act.is_undone + ["waits for the run that writes to the lake"] * act.is_waiting
    return f"{act.act_id[:8]}  {act.at:%Y-%m-%d %H:%M}  {act.who}  {act}" + (f"  ({', '.join(state)})" if state else "")
