"""Remember other places of a picture: what a lake only refers to may be moved, and is then found elsewhere."""

from pairmill.catalog.pending import other_locations
from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.partition import Part
from pairmill.tasks.run.session import Session


def remember(session: Session, among: str) -> None:
    """Write other shards' places of pictures into the shards where these are scored, whose workers read no others.

    ``among`` is a condition of :mod:`catalog.pending.other_locations`. A row of 150 bytes a place; bytes only where they
    were copied.
    """
    for home in other_locations.homes(session.lake, among):
        rows = other_locations.elsewhere(session.lake, among, home)
        at = zip(*(rows[name].to_pylist() for name in ("sha256", "uri", "offset")), strict=True)
        item = WorkItem(home, tuple(f"{sha256} {uri} {offset}" for sha256, uri, offset in at), tables=("payloads",))
        session.store("remember places", item, [Part("payloads", rows)])
