"""Implement `pairmill why ITEM`: print an item's origin, its scores, and why it was kept or dropped."""

from argparse import Namespace
from pathlib import Path

from rich.console import Console

from pairmill.catalog.ask import datasets
from pairmill.catalog.ask.why import Resolved, Scope, resolve, scope_of
from pairmill.catalog.ask.why_document import explain_document
from pairmill.catalog.ask.why_image import decisions, explain_image
from pairmill.catalog.ask.why_sentence import explain_sentence
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.secrets import without_users
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.command.why_text import (
    decision_text,
    print_address,
    print_document,
    print_image,
    print_quarantine,
    print_sentence,
)
from pairmill.ops.text.split import normalise

IN_FULL = 1  # items printed in full; further items get a line each


def why(args: Namespace) -> int:
    """Print all that the lake knows of ``args.item``. Raises PairmillError if the item is unknown."""
    screen = console()
    with create_or_open(args.lake, read_only=True) as lake, lake.one_snapshot():
        stored = _as_stored(args.item)
        found = _found(lake, stored)
        if not found and stored != args.item:  # a local file has the same name as a file in a source
            found = _found(lake, args.item)
        if not found:
            raise PairmillError(
                f"lake '{args.lake}' knows no '{args.item}'. Give an id, a sha256, the address of a picture or page, "
                'or a sentence\'s text; `pairmill sql "SELECT image_id, url FROM images LIMIT 10"` shows some.'
            )
        _print(lake, found, scope_of(lake, _dataset(lake, args.dataset, found)), screen)
    return 0


def _found(lake: Lake, item: str) -> Resolved:
    """Resolve an id, hash, address or sentence to the lake's items."""
    return resolve(lake, item, text_id(normalise(item)))


def _as_stored(item: str) -> str:
    """Convert an item to its stored form: a local file's absolute path, an address without user and password."""
    try:
        return str(Path(item).resolve()) if Path(item).exists() else without_users(item)
    except OSError:  # a sentence may be longer than a file name may be
        return item


def _dataset(lake: Lake, spec: str, found: Resolved) -> datasets.Dataset | None:
    """Return dataset ``spec``, else the newest that decided on the item, else the newest; None if there is none."""
    if spec:
        return datasets.find(lake, spec)
    by_age = sorted(datasets.published(lake), key=lambda each: each.created_at)
    decided = {(row["dataset"], row["version"]) for each in found.images[:IN_FULL] for row in decisions(lake, each)}
    about = [each for each in by_age if (each.name, each.version) in decided] or by_age
    return about[-1] if about else None


def _print(lake: Lake, found: Resolved, scope: Scope, screen: Console) -> None:
    """Print all items found, the first IN_FULL of each kind in full."""
    for row in found.documents:
        print_document(explain_document(lake, row, scope), screen)
    for address in found.addresses[:IN_FULL]:
        print_address(address, screen)
    for image_id in found.images[:IN_FULL]:
        print_image(explain_image(lake, image_id, scope), screen)
    for content in found.sentences[:IN_FULL]:
        print_sentence(explain_sentence(lake, content, scope), screen)
    for other in found.images[IN_FULL:20]:
        decision = next((row for row in reversed(decisions(lake, other))), None)
        screen.print(f"also image {shown(other)}  {decision_text(decision) if decision else ''}")
    for other in found.sentences[IN_FULL:20]:
        screen.print(f"also sentence {shown(other)}")
    if not (found.images or found.addresses):
        print_quarantine(found.quarantine, screen)
