"""Choose the pictures of a report and embed them, each shard read once."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.version_diff import Difference, differences, version_before
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures import pair_sample
from pairmill.catalog.queries.figures.association_audit import repeated_texts
from pairmill.catalog.queries.figures.pair_sample import SetHits, contamination_hits
from pairmill.catalog.queries.gallery import gallery_views
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from pairmill.catalog.queries.gallery.gallery_views import beside
from pairmill.catalog.recipe.plan import Plan, quantities
from pairmill.catalog.terms import text_columns
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnail, thumbnails

MOST_BYTES = 64 * 2**20  # of a benchmark's picture that is shown
PAIRS_SHOWN = 360
EXTREMES = 10  # pairs shown of each end of a similarity
FIRST = 8  # kept, and dropped, pictures of the first screen
IMAGES = 200_000  # of more decided images a sample is shown and broken down
SHOWN = 6  # pictures of each cause of a difference
CAUSES = 12  # the largest


def pictures_shown(lake: Lake, dataset: Dataset, plan: Plan, gallery: Gallery) -> dict[str, Any]:
    """Return the report's variables with rows of pictures, by name; add ``picture`` and ``lost`` of `thumbnails`."""
    before = version_before(lake, dataset)
    fates = gallery_views.by_fate(gallery)
    found = {
        "kept": fates.pop("", []),
        "dropped": fates,
        "distinct": gallery_views.distinct_pictures(gallery),
        "near": _beside_thresholds(plan, gallery),
        "pairs": pair_sample.sample(lake, dataset, plan.recipe.seed, PAIRS_SHOWN),
        "repeated": repeated_texts(lake, dataset),
        "extremes": pair_sample.extremes(lake, dataset, EXTREMES),
        "groups": gallery_views.duplicate_groups(gallery),
        "clusters": _named_clusters(gallery),
        "contaminated": with_benchmark_pictures(contamination_hits(lake, dataset, plan)),
        "before": before,
        "differences": differences(lake, before, dataset, SHOWN, CAUSES) if before else [],
    }
    rows = list(_rows(found))
    wanted = {(row["sha256"], row["shard"]) for row in rows if row["shard"]}
    pictures = thumbnails(lake, sorted(wanted))
    for row in rows:
        row.update(pictures.get(row["sha256"], NONE))
    for pair in found["pairs"]:
        _add_texts(pair)
    names = {"similarities": pair_sample.SIMILARITIES, "compared": pair_sample.COMPARED}
    return found | names | {"first_dropped": _first_dropped(found["dropped"])}


def _beside_thresholds(plan: Plan, gallery: Gallery) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return by rule, then by side ('below 100', 'from 100'), the pictures nearest to each of its thresholds."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for check in plan.image_checks:
        if set(check.columns) <= gallery.types.keys():
            for quantity in quantities(check, gallery.types):
                found.setdefault(check.name, {}).update(beside(gallery, quantity))
    rows = [row for sides in found.values() for side in sides.values() for row in side]
    shards = gallery.shards([row["sha256"] for row in rows])
    for row in rows:
        row["shard"] = shards.get(row["sha256"], "")
    return found


def _named_clusters(gallery: Gallery) -> list[dict[str, Any]]:
    """Return the largest clusters with kept pictures and a name."""
    found = gallery_views.clusters(gallery)
    named = gallery.cluster_names([each["cluster"] for each in found])
    return [{**each, "name": named[each["cluster"]]} for each in found]


def _first_dropped(dropped: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return FIRST dropped pictures, of each rule in turn, without the pictures that do not decode."""
    dropped = {rule: rows for rule, rows in dropped.items() if rule != "readable"}
    longest = max(map(len, dropped.values()), default=0)
    return [rows[n] for n in range(longest) for rows in dropped.values() if n < len(rows)][:FIRST]


def _add_texts(pair: dict[str, Any]) -> None:
    """Add ``texts``, the sentences with their similarities, and whether the picture's address is a link."""
    pair["texts"] = [(text, similarity) for _, text, similarity in text_columns.real_texts(pair)]
    pair["is_link"] = (pair["raw_image_url"] or "").startswith(("https://", "http://"))


def _rows(found: Any) -> Iterator[dict[str, Any]]:
    """Yield every row of a picture within lists, mappings and differences."""
    if isinstance(found, Difference):
        yield from found.images
    elif isinstance(found, SetHits):
        yield from found.hits
    elif isinstance(found, dict) and "sha256" in found:
        yield found
    elif isinstance(found, dict):
        for value in found.values():
            yield from _rows(value)
    elif isinstance(found, list | tuple):
        for value in found:
            yield from _rows(value)


def with_benchmark_pictures(found: list[SetHits]) -> list[SetHits]:
    """Add the benchmark's picture to each hit, in place, as ``benchmark``: its ``name``, ``picture`` and ``lost``."""
    for each in found:
        for hit in each.hits:
            hit["benchmark"] = {"name": Path(hit["file"]).name, **_embed_file(Path(hit["file"]))}
    return found


def _embed_file(file: Path) -> dict[str, Any]:
    """Return a small picture of a file. The benchmark need not be on the machine that writes the report."""
    try:
        if file.stat().st_size > MOST_BYTES:
            return NONE | {"lost": "too large"}
        return NONE | {"picture": thumbnail(file.read_bytes())}
    except OSError:
        return NONE | {"lost": "not on this machine"}
