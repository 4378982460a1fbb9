"""Implement `pairmill why ITEM`: print an item's origin, its scores, and why it was kept or dropped."""

from argparse import Namespace

from rich.console import Console

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.explain.why import Resolved, Scope, scope_of
from pairmill.catalog.queries.explain.why_document import explain_document
from pairmill.catalog.queries.explain.why_image import decisions, explain_image
from pairmill.catalog.queries.explain.why_sentence import explain_sentence
from pairmill.flows.api.asked_item import dataset_about, find_item
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.command.why_text import (
    decision_text,
    print_address,
    print_document,
    print_image,
    print_quarantine,
    print_sentence,
)

IN_FULL = 1  # items printed in full; further items get a line each


def why(args: Namespace) -> int:
    """Print all that the lake knows of ``args.item``. Raises PairmillError if the item is unknown."""
    screen = console()
    with create_or_open(args.lake, read_only=True) as lake, lake.one_snapshot():
        found = find_item(lake, args.item)
        _print(lake, found, scope_of(lake, dataset_about(lake, found, args.dataset)), screen)
    return 0


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
