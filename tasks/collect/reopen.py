"""Retry the items that are quarantined for one reason."""

import numpy as np

from pairmill.catalog.pending import contents, quarantine
from pairmill.catalog.pending.quarantine import Units
from pairmill.ops.read.places.tree import SourceError
from pairmill.ops.read.source import open_source, row_of
from pairmill.tasks.collect import ingest
from pairmill.tasks.collect.fetch import fetch_again
from pairmill.tasks.collect.listing import listed
from pairmill.tasks.run.items.rows import cut_portions
from pairmill.tasks.run.session import Session


def retry_quarantined(session: Session, reason: str) -> int:
    """Retry the items that are quarantined for ``reason``; return their number.

    Source units are read again as a whole (their earlier rows are recognised) and addresses are fetched again, also by
    a recipe without a `fetch` section. Images and sentences become pending for the stages that failed on them.
    """
    session.retried[reason] = quarantine.count(session.lake, reason)
    n = sum(_read_again(session, units) for units in quarantine.units(session.lake, reason))
    n += fetch_again(session, reason)
    if reason == "missing":
        ingest.copy_places_home(session, contents.found_missing())
    return n + quarantine.reopen(session.lake, reason, lambda: session.begin("retry").commit)


def _read_again(session: Session, units: Units) -> int:
    """Read units again, as shards named by ``since`` beside the first reading's; return how many are there still."""
    try:
        source = open_source(units.source)
        found = [each for each in listed(source) if row_of(each)[0] in units.uris]
    except SourceError as error:
        session.note(f"{len(units.uris):,} units are not read again: {error}.")
        return 0
    if lost := len(units.uris) - len(found):
        session.note(f"source '{units.source}' no longer holds {lost:,} units of those to be read again.")
    sizes = np.array([row_of(each)[1] for each in found], np.int64)
    most = ingest.most_units(session.recipe.ingest.documents_per_shard, len(sizes))
    portions = cut_portions(sizes, most, ingest.SHARD_BYTES)
    items = [ingest.shard_item(found[first:end], "retry", str(units.since), units.source) for first, end in portions]
    session.work("ingest", items, ingest.IngestUnits(source, ingest.settings_for(session.lake, session.recipe)))
    contents.index(session.lake, lambda: session.begin("index contents").commit)
    return len(found)
