"""Define the SQL macros that a lake stores, so that plain DuckDB users can compare and search its vectors."""

# An fp16 number as an integer h of 16 bits, its two bytes swapped: sign, 5 bits of exponent, 10 of fraction.
_HALF = (
    "(1 - 2 * ((h & 128) // 128)) * ((h & 3) * 256 + (h >> 8) + if(h & 124 > 0, 1024, 0)) "
    "* pow(2.0, greatest((h & 124) // 4, 1) - 25)"
)
_OWN = (
    "SELECT scorer, sha256, image_vector FROM image_embedding WHERE image_vector IS NOT NULL AND (sha256 = id OR "
    'sha256 IN (SELECT i.sha256 FROM images i WHERE i.image_id = id)) ORDER BY "commit" DESC LIMIT 1'
)
_FOUND = (
    "SELECT e.sha256, max(round(list_inner_product(vector_values(e.image_vector), q.v), 4)) AS similarity "
    "FROM image_embedding e, q WHERE e.scorer = q.scorer AND e.image_vector IS NOT NULL AND e.sha256 <> q.sha256 "
    "GROUP BY e.sha256 ORDER BY similarity DESC, e.sha256 LIMIT n"
)
_SHOWN = (
    "SELECT i.image_id, found.sha256, found.similarity, i.url, i.alt_text FROM found JOIN (SELECT sha256, "
    "min(image_id) AS image_id, arg_min(url, image_id) AS url, arg_min(alt_text, image_id) AS alt_text FROM images "
    "WHERE sha256 IN (SELECT sha256 FROM found) GROUP BY sha256) i ON i.sha256 = found.sha256 "
    "ORDER BY found.similarity DESC, found.sha256"
)


def nearest(query: str) -> str:
    """Return SQL for the ``n`` pictures nearest to the one row of ``query``: scorer, sha256 and image_vector.

    A scan of all vectors of the scorer: 0.2 CPU ms for each of 512 numbers, so a million take 200 CPU s. Python's
    `ImageVectors` and `pairmill browse` search as many in 0.1 s.
    """
    q = "SELECT scorer, sha256, vector_values(image_vector) AS v FROM own"
    return f"WITH own AS ({query}), q AS ({q}), found AS ({_FOUND}) {_SHOWN}"


# Each macro by name, with the tables that it reads. A macro stands after those that it uses.
MACROS: dict[str, tuple[str, ...]] = {
    "vector_values": (),
    "similarity": (),
    "nearest_pictures": ("images", "image_embedding"),
}


def definitions() -> dict[str, str]:
    """Return name -> definition, as it stands after CREATE MACRO."""
    return {
        "vector_values": "vector_values(vector) AS list_transform(list_transform("
        f"regexp_extract_all(hex(vector), '....'), lambda x: ('0x' || x)::INTEGER), lambda h: {_HALF})",
        "similarity": "similarity(a, b) AS list_cosine_similarity(vector_values(a), vector_values(b))",
        "nearest_pictures": f"nearest_pictures(id, n := 10) AS TABLE {nearest(_OWN)}",
    }
