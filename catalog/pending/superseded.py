"""Find documents that their source no longer holds: their rows stay, for older versions, and no longer count.

A unit of a source (a page, a tar, a row group) that is listed with another size or etag, or that another reader reads
now, is read again, by whatever name the source goes. A document that it held before and no unit holds any longer is
*gone* from that commit on; should a unit hold it again one day, it is back. So a row counts at commit n when its
document's last entry up to n does not call it gone.

A table is cut into row groups or ranges of bytes, and cut another way when it changes. A part that it no longer has is
*lost*: its last reading in ``inputs`` has the etag 'lost' and gave nothing. What it held counts if other parts hold it.
"""

from collections.abc import Callable, Sequence

from pairmill.catalog.lake.lake import Lake

# The key of a row of each table in which a document that was read again has a second row.
_KEYS = {
    "documents": "document_id",
    "images": "image_id",
    "sentences": "sentence_id",
    "links": "(document_id, position)",
}
# Units with a reading that was not compared yet with those before it. A source that only ever passed over a file, being
# asked for other formats, has not read it.
_READINGS = (
    "SELECT uri AS unit, source, min(commit) AS first, max(commit) AS last, bool_or(etag <> 'ignored') AS took "
    "FROM inputs GROUP BY ALL"
)
_REREAD = (
    "SELECT unit, commit FROM "
    "(SELECT unit, min(first) AS first, coalesce(max(last) FILTER (took), max(last)) AS commit "
    f"FROM ({_READINGS}) GROUP BY unit) "
    "WHERE first < commit AND (unit, commit) NOT IN (SELECT unit, commit FROM rereads)"
)
_LOST = "CREATE TEMP TABLE IF NOT EXISTS lost (uri VARCHAR, source VARCHAR)"


def gone_documents(upto: int | None = None) -> str:
    """SQL of the ids of documents that do not count at commit ``upto`` (now when None)."""
    where = "" if upto is None else f" WHERE commit <= {upto}"
    return f"(SELECT document_id FROM superseded{where} GROUP BY document_id HAVING arg_max(gone, commit))"


def gone_sentences(upto: int | None = None) -> str:
    """SQL of the contents of sentences all of whose documents are gone. Costs nothing while nothing is superseded."""
    where = "" if upto is None else f" AND commit <= {upto}"
    touched = f"SELECT content FROM sentences WHERE document_id IN {gone_documents(upto)}{where}"
    return (
        f"(SELECT content FROM sentences WHERE content IN ({touched}){where} GROUP BY content "
        f"HAVING bool_and(document_id IN {gone_documents(upto)}))"
    )


def note_lost_parts(lake: Lake, source: str, parts: Sequence[str]) -> None:
    """Remember, for the next `supersede` on this connection, ``parts`` that files of ``source`` no longer have."""
    lake.execute(_LOST)
    lake.execute("INSERT INTO lost SELECT unnest(?::VARCHAR[]), ?", (parts, source))


def supersede(lake: Lake, begin: Callable[[], int]) -> int:
    """Compare units that were read again, or lost, with what they held before. Returns how many documents are gone.

    Quarantine rows of a unit that was read again stay only if they were found again.

    One pass over ``inputs``; where anything was read again two over ``documents``, and one over each table in which its
    rows may stand twice. In one transaction, so that a killed run leaves it to the next, which finds the same parts
    lost.
    """
    lake.execute(_LOST)
    if not lake.query(f"SELECT 1 FROM lost UNION ALL SELECT 1 FROM ({_REREAD}) LIMIT 1"):
        return 0
    commit = begin()

    def body() -> int:
        lake.execute(
            "INSERT INTO inputs BY NAME SELECT uri, min(source) AS source, 0 AS size, 'lost' AS etag, 0 AS retries, "
            f"{commit} AS commit FROM lost GROUP BY uri"
        )
        lake.execute(f"CREATE OR REPLACE TEMP TABLE reread AS {_REREAD}")
        _compare(lake)
        lake.execute(
            f"INSERT INTO superseded SELECT document_id, NOT held, {commit} FROM compared "
            f"WHERE held = (document_id IN {gone_documents()})"
        )
        for table, key in _KEYS.items():
            _delete_repeated_rows(lake, table, key)
        lake.execute("UPDATE documents SET unit = c.unit FROM compared c WHERE c.document_id = documents.document_id "
                     "AND c.unit IS DISTINCT FROM documents.unit")  # fmt: skip
        lake.execute(
            "DELETE FROM quarantine WHERE stage = 'ingest' AND EXISTS (SELECT 1 FROM reread r WHERE "
            "r.unit = quarantine.payload_ref AND quarantine.commit < r.commit)"
        )
        lake.execute("INSERT INTO rereads (unit, commit) SELECT unit, commit FROM reread")
        lake.execute("DROP TABLE lost")
        return lake.query("SELECT count(*) FROM superseded WHERE gone AND commit = ?", (commit,))[0][0]

    return lake.retrying(body)


def _compare(lake: Lake) -> None:
    """Make ``compared``: the documents of units that were read again, and those gone, which parts read for the first
    time may hold. How often each was read (``n``), whether any unit still holds it (``held``), and the last ``unit``.

    A unit that was not read again holds what it held, unless that was gone before.
    """
    readings = (
        "SELECT document_id, unit, d.commit, coalesce(d.commit = r.commit, d.commit > g.commit, true) AS holds "
        "FROM documents d LEFT JOIN reread r USING (unit) LEFT JOIN (SELECT document_id, max(commit) AS commit "
        f"FROM superseded WHERE document_id IN {gone_documents()} GROUP BY document_id) g USING (document_id)"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE compared AS SELECT document_id, count(*) AS n, bool_or(holds) AS held, "
        f"arg_max(unit, (holds, commit)) AS unit FROM ({readings}) WHERE document_id IN (SELECT document_id "
        f"FROM documents SEMI JOIN reread USING (unit) UNION ALL {gone_documents()}) GROUP BY document_id"
    )


def _delete_repeated_rows(lake: Lake, table: str, key: str) -> None:
    """Delete later rows of documents that were read again and are the same: older versions were cut from the first."""
    lake.execute(
        f"DELETE FROM {table} WHERE ({key}, commit) IN (SELECT {key}, commit FROM {table} WHERE document_id IN "
        f"(SELECT document_id FROM compared WHERE n > 1) QUALIFY commit > min(commit) OVER (PARTITION BY {key}))"
    )
