"""Store other places of an image: if a source that the lake refers to moves a file, another may still have it."""

from pairmill.catalog.pending import contents
from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.session import Session


def remember(session: Session, among: str) -> None:
    """Copy other shards' places of images into their home shards, whose workers read no other shard.

    ``among`` is a SQL condition of `catalog/pending/contents.py`. A place takes a row of 150 bytes, plus the
    image's bytes only where the lake has a copy.
    """
    for home, rows in contents.locations_elsewhere(session.lake, among):
        at = zip(*(rows[name].to_pylist() for name in ("sha256", "uri", "offset")), strict=True)
        item = WorkItem(home, tuple(f"{sha256} {uri} {offset}" for sha256, uri, offset in at), tables=("payloads",))
        session.store("remember places", item, [Part("payloads", rows)])
