"""`pairmill why ITEM`: one item's whole story, as text."""

from argparse import Namespace
from pathlib import Path

from rich.console import Console

from catalog.ask import datasets
from catalog.ask.why import Named, Seen, named, seen_by
from catalog.ask.why_document import document
from catalog.ask.why_image import image, versions
from catalog.ask.why_sentence import sentence
from catalog.lake.error import PairmillError
from catalog.lake.lake import Lake
from catalog.lake.opening import create_or_open
from catalog.terms.ids import text_id
from flows.command.story import fate_of, tell_address, tell_document, tell_image, tell_quarantine, tell_sentence
from flows.command.terminal import console
from ops.text.split import normalise

WHOLE = 1  # items told in full; of more, a line each


def why(args: Namespace) -> int:
    screen = console()
    with create_or_open(args.lake, read_only=True) as lake:
        item = _as_stored(args.item)
        found = named(lake, item, text_id(normalise(item)))
        if not found:
            raise PairmillError(
                f"lake '{args.lake}' knows no '{args.item}'. Give an id, a sha256, the address of a picture or page, "
                'or a sentence\'s text; `pairmill sql "SELECT image_id, url FROM images LIMIT 10"` shows some.'
            )
        _tell(lake, found, seen_by(lake, _dataset(lake, args.dataset, found)), screen)
    return 0


def _as_stored(item: str) -> str:
    """A file is known to the lake by its whole path; a person names it as it lies before him."""
    try:
        return str(Path(item).resolve()) if Path(item).exists() else item
    except OSError:  # a sentence may be too long for a file's name
        return item


def _dataset(lake: Lake, spec: str, found: Named) -> datasets.Dataset | None:
    """The one asked for, else the newest that decided on the item, else the newest."""
    if spec:
        return datasets.find(lake, spec)
    by_age = sorted(datasets.published(lake), key=lambda each: each.created_at)
    decided = {(row["dataset"], row["version"]) for each in found.images[:WHOLE] for row in versions(lake, each)}
    about = [each for each in by_age if (each.name, each.version) in decided] or by_age
    return about[-1] if about else None


def _tell(lake: Lake, found: Named, seen: Seen, screen: Console) -> None:
    for row in found.documents:
        tell_document(document(lake, row, seen), screen)
    for address in found.addresses[:WHOLE]:
        tell_address(address, screen)
    for image_id in found.images[:WHOLE]:
        tell_image(image(lake, image_id, seen), screen)
    for content in found.sentences[:WHOLE]:
        tell_sentence(sentence(lake, content, seen), screen)
    for other in found.images[WHOLE:20]:
        fate = next((row for row in reversed(versions(lake, other))), None)
        screen.print(f"also image {other}  {fate_of(fate) if fate else ''}")
    for other in found.sentences[WHOLE:20]:
        screen.print(f"also sentence {other}")
    if not (found.images or found.addresses):
        tell_quarantine(found.quarantine, screen)
