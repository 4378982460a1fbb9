"""Collect a lake's ban list for the jobs that read pages and fetch pictures."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.contents import bans
from pairmill.ops.ban_list import BanList, Banned


def ban_list(lake: Lake, hosts: tuple[str, ...] = ()) -> BanList:
    """Return the lake's ban list; ``hosts`` are further banned hosts or beginnings of addresses."""
    banned = bans(lake)
    urls = frozenset(each for each in banned["address"] if "/" in each and not each.endswith("/"))
    return BanList(
        banned["picture"],
        banned["document"],
        urls | banned["uri"],
        Banned((*hosts, *(banned["address"] - urls))),
        tuple(sorted(map(int, banned["phash"]))),
    )
