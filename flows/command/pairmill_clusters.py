"""Implement `pairmill clusters`: name the clusters of a version, with their sizes before and after the cap."""

import json
from argparse import Namespace
from dataclasses import astuple, fields

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
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
    if args.format == "table" and (line := _fewer(dataset, found)):
        print(line)
    return 0


def _fewer(dataset: Dataset, found: list[NamedCluster]) -> str:
    """Return a command that halves the cluster with most kept images, beside what the recipe has; '' without a cap."""
    balance = json.loads(dataset.recipe)["balance"]
    largest = max(found, key=lambda each: each.kept)
    if not isinstance(balance.get("cap"), int) or largest.kept < 2:
        return ""
    own = {**(balance.get("fewer") or {}), str(largest.cluster): largest.kept // 2}
    caps = ", ".join(f"{cluster}: {most:g}" for cluster, most in own.items())
    return (
        f"half as many of cluster {largest.cluster} ({largest.name or 'without a name'}): "
        f"pairmill recut {dataset} --set 'balance.fewer={{{caps}}}'"
    )
