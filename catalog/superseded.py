"""Documents whose source has changed since: their rows stay, for the versions that saw them, and no longer count.

A unit of a source (a page, a tar, a row group) that is listed with another size or etag is read again. What it said
before and says no longer is *gone* from that commit on; should it say so again one day, it is back. So a row counts at
commit n when its document's last entry up to n does not call it gone.
"""

from collections.abc import Callable

from catalog.lake import Lake

# Rows of a document that was read again and is the same; the older ones stay.
_IDS = {"images": "image_id", "sentences": "sentence_id", "documents": "document_id"}
_REREAD = (
    "SELECT i.source, i.uri AS unit, max(i.commit) AS commit FROM inputs i LEFT JOIN rereads r "
    "ON r.source = i.source AND r.unit = i.uri GROUP BY ALL "
    "HAVING count(DISTINCT i.commit) > 1 AND max(i.commit) > coalesce(max(r.commit), 0)"
)


def gone(upto: int | None = None) -> str:
    """SQL: the ids of documents that do not count at commit ``upto`` (now when None)."""
    where = "" if upto is None else f" WHERE commit <= {upto}"
    return f"(SELECT document_id FROM superseded{where} GROUP BY document_id HAVING arg_max(gone, commit))"


def silenced(upto: int | None = None) -> str:
    """SQL: contents of sentences all of whose documents are gone. Costs nothing while nothing is superseded."""
    where = "" if upto is None else f" AND commit <= {upto}"
    touched = f"SELECT content FROM sentences WHERE document_id IN {gone(upto)}{where}"
    return (
        f"(SELECT content FROM sentences WHERE content IN ({touched}){where} GROUP BY content "
        f"HAVING bool_and(document_id IN {gone(upto)}))"
    )


def settle(lake: Lake, begin: Callable[[], int]) -> int:
    """Compare what was read again with what it said before. Returns the number of documents that are gone by it.

    What stood in quarantine for a unit that was read again stands there only if it was found again.

    One pass over ``inputs``, and over the documents of the units that were read again; in one transaction, so that a
    killed run leaves it to the next.
    """
    if not lake.query(f"SELECT 1 FROM ({_REREAD}) LIMIT 1"):
        return 0
    commit = begin()

    def body() -> int:
        lake.execute(f"CREATE OR REPLACE TEMP TABLE reread AS {_REREAD}")
        lake.execute(
            "CREATE OR REPLACE TEMP TABLE said AS SELECT d.document_id, min(d.commit) < max(r.commit) AS before, "
            "max(d.commit) = max(r.commit) AS now FROM documents d JOIN reread r "
            "ON r.source = d.source AND r.unit = d.unit GROUP BY ALL"
        )
        lake.execute(
            f"INSERT INTO superseded SELECT document_id, NOT now, {commit} FROM said "
            f"WHERE before AND now = (document_id IN {gone()})"
        )
        for table, key in _IDS.items():
            _forget_copies(lake, table, key)
        lake.execute("DELETE FROM links WHERE (document_id, position, commit) IN (SELECT document_id, position, commit "
                     "FROM links WHERE document_id IN (SELECT document_id FROM said WHERE before AND now) QUALIFY "
                     "row_number() OVER (PARTITION BY document_id, position ORDER BY commit) > 1)")  # fmt: skip
        lake.execute(
            "DELETE FROM quarantine WHERE stage = 'ingest' AND EXISTS (SELECT 1 FROM reread r WHERE "
            "r.unit = quarantine.payload_ref AND quarantine.source IN (r.source, '') AND quarantine.commit < r.commit)"
        )
        lake.execute("INSERT INTO rereads SELECT source, unit, commit FROM reread")
        return lake.query("SELECT count(*) FROM superseded WHERE gone AND commit = ?", (commit,))[0][0]

    return lake.retrying(body)


def _forget_copies(lake: Lake, table: str, key: str) -> None:
    same = "SELECT document_id FROM said WHERE before AND now"
    lake.execute(
        f"DELETE FROM {table} WHERE ({key}, commit) IN (SELECT {key}, commit FROM {table} WHERE document_id IN ({same})"
        f" QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY commit) > 1)"
    )
