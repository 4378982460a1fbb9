"""Collect a lake's ban list for the jobs that read pages and fetch pictures."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.bans import banned_pictures, bans_of
from pairmill.ops.ban_list import BanList
from pairmill.ops.fetch.refusal import Banned


def ban_list(lake: Lake, hosts: tuple[str, ...] = ()) -> BanList:
    """Return the lake's ban list; ``hosts`` are further banned hosts or beginnings of addresses."""
    addresses = bans_of(lake, "address")
    urls = frozenset(each for each in addresses if "/" in each and not each.endswith("/"))
    return BanList(
        banned_pictures(lake),
        frozenset(bans_of(lake, "document")),
        urls,
        Banned((*hosts, *(each for each in addresses if each not in urls))),
        tuple(map(int, bans_of(lake, "phash"))),
    )
