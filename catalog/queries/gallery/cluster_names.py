"""Name clusters of pictures by the tags and words that their pictures have more often than others."""

from collections.abc import Sequence

from pairmill.catalog.queries.gallery.gallery_query import Gallery

TERMS = 3
SAMPLED = 200_000  # pictures that the names come from, those with the smallest ids, which are hashes
_WORD = "[a-zà-öø-ÿ]{4,}"
_DULL = ("about", "also", "been", "from", "have", "here", "into", "more", "other", "over", "some", "than", "that",
         "their", "them", "then", "there", "these", "they", "this", "very", "were", "what", "when", "where", "which",
         "will", "with", "your")  # fmt: skip


def cluster_names(gallery: Gallery, clusters: Sequence[int]) -> dict[int, str]:
    """Return a name of each cluster, such as 'lighthouse, sea, rocks': its TERMS most telling terms; '' without texts.

    A term is a tag, or where a picture has no tags a word of four letters or more of its first text. It tells
    p * ln(p / q) of its cluster, where p is its share of the cluster's pictures and q of all pictures: the terms of
    Kullback and Leibler's divergence.
    """
    if not clusters:
        return {}
    among = ", ".join(str(int(each)) for each in clusters)
    dull = ", ".join(f"'{word}'" for word in _DULL)
    words = f"regexp_extract_all(lower(coalesce(_text1, '')), '{_WORD}')"
    sql = f"""WITH pictures AS MATERIALIZED (SELECT cluster,
            list_distinct(if(len(_tags) > 0, _tags, list_filter({words}, w -> w NOT IN ({dull})))) AS terms
        FROM (SELECT * FROM images ORDER BY image_id LIMIT {SAMPLED}) WHERE cluster IS NOT NULL),
    each AS MATERIALIZED (SELECT cluster, unnest(terms) AS term FROM pictures),
    sizes AS (SELECT cluster, count(*) AS n FROM pictures GROUP BY ALL),
    shares AS (SELECT term, count(*) / (SELECT count(*) FROM pictures) AS q FROM each GROUP BY ALL),
    own AS (SELECT cluster, term, count(*) AS n FROM each WHERE cluster IN ({among}) GROUP BY ALL),
    told AS (SELECT cluster, term, own.n / sizes.n AS p, q FROM own JOIN sizes USING (cluster) JOIN shares USING (term)
        WHERE own.n > 1 OR sizes.n = 1),
    best AS (SELECT *, row_number() OVER (PARTITION BY cluster ORDER BY p * ln(p / q) DESC, term) AS place FROM told)
    SELECT cluster, string_agg(term, ', ' ORDER BY place) AS name FROM best WHERE place <= {TERMS} GROUP BY cluster"""
    return {each: "" for each in clusters} | {row["cluster"]: row["name"] for row in gallery.rows(sql)}
