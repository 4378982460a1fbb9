"""Act on pictures of a dataset: leave out, keep, tag, untag. List acts and undo them.

An act is first written to the queue beside the lake (`catalog.write.act_queue`), so that nothing that a person has
decided is lost; then it is stored at once, or by the run that holds the lease.
"""

import getpass
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.edit_preview import fates_of
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Choice, Gallery
from pairmill.catalog.terms.error import LeaseHeld, NotWritable, PairmillError
from pairmill.catalog.upkeep.taken_items import pictures_of
from pairmill.catalog.write import acts
from pairmill.catalog.write.act_queue import unreadable_files
from pairmill.catalog.write.acts import Act
from pairmill.catalog.write.lease import writing
from pairmill.flows.api.asked_item import find_item

WAIT_SECONDS = 1.0  # for another short writer, such as an act in another window; a run is not waited for


@dataclass(frozen=True)
class StoredAct:
    """What an act does in the version ``dataset``: it is on ``pictures``, of which ``pairs`` are in its pairs.

    ``act_id`` is '' for a trial. ``is_waiting``: the process that holds the lease has yet to store it.
    """

    dataset: Dataset
    pictures: int
    pairs: int
    act_id: str = ""
    is_waiting: bool = False


def act_on(
    lake: Lake, spec: str, act: str, fates: Mapping[str, str], word: str = "", dry_run: bool = False
) -> StoredAct:
    """Store one of `acts.VERDICTS` on pictures; ``fates`` are those of `fates_named`, or of a gallery.

    Raises PairmillError if there is no picture, the word is not fit, or the act changes nothing.
    """
    dataset = find(lake, spec)
    if act not in acts.VERDICTS:
        raise PairmillError(f"'{act[:40]}' is no act; there are {', '.join(acts.VERDICTS)}.")
    if not fates:
        raise PairmillError("no picture is selected. Nothing was stored.")
    n, pairs = acts.prepare_verdicts(lake, dataset.name, act, word, fates)
    if not n:
        raise PairmillError("a newer act says the same of all these pictures already. Nothing was stored.")
    return StoredAct(dataset, n, pairs, *(("", False) if dry_run else submit(lake, dataset.name)))


def submit(lake: Lake, dataset: str) -> tuple[str, bool]:
    """Queue the prepared act and store it if nobody else writes; return its id, and whether it waits."""
    act_id = acts.enqueue(lake, dataset, user_name())
    return act_id, _still_waits(lake, dataset)


def undo_act(lake: Lake, spec: str, act_id: str) -> tuple[Act, bool]:
    """Undo an act of a dataset, found by `acts.find_act`; return it, and whether the undo waits. Raises as that."""
    dataset = find(lake, spec).name
    found = acts.find_act(lake, dataset, act_id)
    acts.enqueue_undo(lake, dataset, found.act_id, user_name())
    return found, _still_waits(lake, dataset)


def _still_waits(lake: Lake, dataset: str) -> bool:
    """Store the queued acts if nobody else writes to the lake; return whether they wait for the one who does."""
    if lake.read_only:
        try:
            with create_or_open(lake.uri) as writable:
                return _still_waits(writable, dataset)
        except NotWritable:
            return True
    try:
        with writing(lake, uuid.uuid4().hex, f"edit {dataset}", WAIT_SECONDS):
            return False
    except LeaseHeld:
        return True


def fates_named(lake: Lake, spec: str, picture: str | None, file: str | None, where: str | None) -> dict[str, str]:
    """Return the `fates_of` of pictures that are named in one way.

    ``picture`` is an item as `pairmill why` takes it; ``file`` has sha256, image_id or url of each picture; ``where``
    is a predicate as in a recipe, over the pictures on which the version decided. Raises PairmillError for none or
    several ways, or if one is not valid.
    """
    dataset = find(lake, spec)
    if sum(each is not None for each in (picture, file, where)) != 1:
        raise PairmillError("name the pictures in one way: --picture ITEM, --list FILE or --where RULE.")
    if where is not None:
        with Gallery(gallery_file(lake, dataset)) as gallery:
            found = gallery.fates_of_pictures(Choice(where=where))
    elif file is not None:
        found = fates_of(lake, dataset, acts.pictures_in(lake, Path(file)))
    else:
        found = fates_of(lake, dataset, pictures_of(lake, find_item(lake, picture or "").images))
    if not found:
        raise PairmillError(f"no picture of {dataset} is named so. Nothing was stored.")
    return found


def list_acts(lake: Lake, dataset: str) -> tuple[list[Act], list[str]]:
    """Return the acts on a dataset, oldest first, and the paths of damaged files of the queue."""
    return acts.acts_of(lake, dataset), unreadable_files(lake)


def user_name() -> str:
    """Return this user's login name; 'user NUMBER' if the user has none, as in containers."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"user {os.getuid()}"
