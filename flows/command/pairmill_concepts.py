"""Implement `pairmill concepts`: count the pictures and texts of each name of a list, and show what drops the rest."""

from argparse import Namespace
from dataclasses import astuple, fields

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.flows.api.name_list import name_list
from pairmill.flows.api.version_clip import version_clip
from pairmill.flows.command.pairmill_read import show
from pairmill.tasks.release.gallery.concepts import Concept
from pairmill.tasks.release.gallery.concepts import concepts as count

LEGEND = (
    "pictures: kept, by CLIP; texts: pairs that name it; dropped: by CLIP, most by this rule (dropped_by_rule).\n"
    "alone: of these, the ones that fail no other rule; half of them come back if the rule's threshold is `looser`."
)


def concepts(args: Namespace) -> int:
    """Print one row per name."""
    names = name_list(args.names)
    with create_or_open(args.lake, read_only=True) as lake:
        dataset = datasets.find(lake, args.dataset)
        found = count(lake, dataset, names, version_clip(lake, dataset)[0].embed_texts)
    rows = [astuple(each) for each in found]
    if args.format == "table":
        rows = [tuple("·" if value is None else value for value in row) for row in rows]
    show([field.name for field in fields(Concept)], rows, args.format)
    if args.format == "table":
        print(LEGEND)
    return 0
