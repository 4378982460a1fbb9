"""Select images of a gallery to look at: kept, dropped by each rule, duplicate groups, clusters; break it down.

Images with the smallest ids are chosen: ids are hashes, so that this is a random sample.
"""

from typing import Any

from pairmill.catalog.queries.gallery.gallery_query import FACETS, Gallery

STRIP = 12  # images kept, and images of each rule that drops
GROUPS, MEMBERS = 8, 8
CLUSTERS, OF_CLUSTER = 12, 8
VALUES = 12  # rows of a breakdown
LONGEST = 200  # characters of a text
_SHOWN = (
    f"image_id, sha256, shard, width, height, left(alt_text, {LONGEST}) AS alt_text, dropped_by, _value AS value, "
    f"left(_text1, {LONGEST}) AS text1"
)


def by_fate(gallery: Gallery) -> dict[str, list[dict[str, Any]]]:
    """Return STRIP distinct pictures of each rule that drops some, and of the kept ones under ''."""
    once = (
        f"SELECT {_SHOWN} FROM images WHERE dropped_by IS NOT NULL QUALIFY row_number() OVER "
        "(PARTITION BY dropped_by, sha256 ORDER BY image_id) = 1"
    )
    rows = gallery.rows(
        f"SELECT * FROM ({once}) QUALIFY row_number() OVER (PARTITION BY dropped_by ORDER BY image_id) <= {STRIP} "
        "ORDER BY dropped_by, image_id"
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["dropped_by"], []).append(row)
    return found


def distinct_pictures(gallery: Gallery) -> dict[str, int]:
    """Count the distinct pictures that each rule drops: an icon on a thousand pages is one."""
    rows = gallery.rows(
        "SELECT dropped_by, count(DISTINCT sha256) AS n FROM images WHERE dropped_by <> '' GROUP BY ALL"
    )
    return {row["dropped_by"]: row["n"] for row in rows}


def duplicate_groups(gallery: Gallery) -> list[list[dict[str, Any]]]:
    """Return the GROUPS largest groups of which the rule 'duplicate' dropped an image, the keeper first.

    Of each at most MEMBERS distinct pictures. ``is_keeper`` marks the one for which the others were dropped; a sample
    may lack it.
    """
    groups = (
        "SELECT group_id, count(DISTINCT sha256) AS n FROM images WHERE group_id IN (SELECT group_id FROM images "
        f"WHERE dropped_by = 'duplicate') GROUP BY group_id ORDER BY n DESC, group_id LIMIT {GROUPS}"
    )
    rows = gallery.rows(
        f"""WITH chosen AS ({groups}), keepers AS (SELECT DISTINCT _value AS image_id FROM images
            WHERE dropped_by = 'duplicate'),
        members AS (SELECT {_SHOWN}, n, group_id, image_id IN (SELECT image_id FROM keepers) AS is_keeper
            FROM images JOIN chosen USING (group_id)),
        once AS (SELECT * FROM members QUALIFY row_number() OVER
            (PARTITION BY group_id, sha256 ORDER BY is_keeper DESC, image_id) = 1)
        SELECT * FROM once QUALIFY row_number() OVER
            (PARTITION BY group_id ORDER BY is_keeper DESC, image_id) <= {MEMBERS}
        ORDER BY n DESC, group_id, is_keeper DESC, image_id"""
    )
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["group_id"], []).append(row)
    return list(found.values())


def clusters(gallery: Gallery) -> list[dict[str, Any]]:
    """Return the largest clusters by kept images, at most CLUSTERS, as dictionaries of ``cluster, kept, images``.

    ``images`` are at most OF_CLUSTER of the cluster's kept images.
    """
    sizes = gallery.rows(
        "SELECT cluster, count(*) AS kept FROM images WHERE dropped_by = '' AND cluster IS NOT NULL GROUP BY cluster "
        f"ORDER BY kept DESC, cluster LIMIT {CLUSTERS}"
    )
    shown = gallery.rows(
        f"SELECT {_SHOWN}, cluster FROM images WHERE dropped_by = '' AND cluster IN ({_numbers(sizes)}) QUALIFY "
        f"row_number() OVER (PARTITION BY cluster ORDER BY image_id) <= {OF_CLUSTER} ORDER BY image_id"
    )
    return [{**size, "images": [row for row in shown if row["cluster"] == size["cluster"]]} for size in sizes]


def breakdown(gallery: Gallery) -> dict[str, list[dict[str, Any]]]:
    """Count images by source, domain, language and format: ``value, images, kept, worst_rule, n_worst``.

    The VALUES most frequent values of each; the others are summed under None.
    """
    return {name: _values(gallery, column) for name, column in FACETS.items()}


def _values(gallery: Gallery, column: str) -> list[dict[str, Any]]:
    """Return the rows of one breakdown, most images first."""
    return gallery.rows(
        f"""WITH top AS (SELECT {column} AS value FROM images WHERE coalesce({column}, '') <> '' GROUP BY ALL
            ORDER BY count(*) DESC, value LIMIT {VALUES}),
        fates AS (SELECT if({column} IN (SELECT value FROM top), {column}, NULL) AS value, dropped_by AS fate,
            count(*) AS n FROM images GROUP BY ALL)
        SELECT left(value, {LONGEST}) AS value, sum(n)::BIGINT AS images,
            coalesce(sum(n) FILTER (fate = ''), 0)::BIGINT AS kept,
            arg_max(fate, (n, fate)) FILTER (fate <> '') AS worst_rule,
            coalesce(max(n) FILTER (fate <> ''), 0)::BIGINT AS n_worst
        FROM fates GROUP BY fates.value ORDER BY fates.value IS NULL, images DESC, fates.value"""
    )


def _numbers(found: list[dict[str, Any]]) -> str:
    """Return the ids of clusters as a list in SQL."""
    return ", ".join(str(each["cluster"]) for each in found) or "NULL"
