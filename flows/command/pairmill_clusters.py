"""Implement `pairmill clusters`: name the clusters of a version, with their sizes before and after the cap."""

from argparse import Namespace
from dataclasses import astuple, fields

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.gallery.gallery_file import gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.gallery.named_clusters import NamedCluster, named_clusters
from pairmill.flows.command.pairmill_read import show


def clusters(args: Namespace) -> int:
    """Print the largest clusters of a version."""
    with create_or_open(args.lake, read_only=True) as lake:
        dataset = datasets.find(lake, args.dataset)
        with Gallery(gallery_file(lake, dataset)) as gallery:
            found = named_clusters(gallery, args.most)
    if not found and args.format == "table":
        print(f"{dataset} has no clusters: its recipe has no cap, or no picture has a vector.")
        return 0
    show([field.name for field in fields(NamedCluster)], [astuple(each) for each in found], args.format)
    return 0
