"""List the clusters that the cap balances: their names, and their sizes before and after the cap."""

from dataclasses import dataclass

from pairmill.catalog.queries.gallery.cluster_names import cluster_names
from pairmill.catalog.queries.gallery.gallery_query import Gallery


@dataclass(frozen=True)
class NamedCluster:
    """One cluster of a version.

    Attributes:
        cluster: Its number, as in ``pairs.cluster``.
        name: Terms that its pictures have more often than others; '' without texts.
        images: Images of the version in it, whatever drops them.
        before: Those that reach the cap.
        kept: Those that the version keeps.
        example: The kept image with the smallest id; '' without one.
    """

    cluster: int
    name: str
    images: int
    before: int
    kept: int
    example: str


def named_clusters(gallery: Gallery, most: int) -> list[NamedCluster]:
    """Return the ``most`` largest clusters, by the images that reach the cap."""
    reached = "dropped_by IN ('', 'balance', 'max_uses')"
    rows = gallery.rows(
        f"SELECT cluster, count(*) AS images, count(*) FILTER ({reached}) AS before, "
        "count(*) FILTER (dropped_by = '') AS kept, coalesce(min(image_id) FILTER (dropped_by = ''), '') AS example "
        "FROM images WHERE cluster IS NOT NULL GROUP BY cluster "
        f"ORDER BY before DESC, images DESC, cluster LIMIT {most}"
    )
    names = cluster_names(gallery, [row["cluster"] for row in rows])
    return [NamedCluster(name=names[row["cluster"]], **row) for row in rows]
