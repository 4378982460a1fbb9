"""Find documents that their source no longer contains: their rows stay for older versions, but no longer count.

A unit of a source (a page, a tar, a row group) is read again if it is listed with another size or etag, or if another
reader now reads it, whatever name the source has. A document that it contained before and that no unit contains any
more is *gone* from that commit on; it is back if a unit contains it again. So a row counts at commit n unless its
document's last entry up to n says gone.

A table is split into row groups or byte ranges, and differently when it changes. A part that is gone is *lost*: its
last reading in ``inputs`` has the etag 'lost' and yielded nothing. Its documents count if others contain them.
"""

from collections.abc import Callable, Sequence

from pairmill.catalog.lake.lake import Lake

# Key columns of the tables in which documents that are read again get second rows.
_KEYS = {"documents": "document_id", "images": "image_id", "sentences": "sentence_id",
         "links": "(document_id, position)"}  # fmt: skip
# Units with a new reading that was not yet compared with earlier ones. A source that only skipped a file, because it
# was restricted to other formats, has not read the file.
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
    """Return SQL for the ids of documents that do not count at commit ``upto`` (None: now)."""
    where = "" if upto is None else f" WHERE commit <= {upto}"
    return f"(SELECT document_id FROM superseded{where} GROUP BY document_id HAVING arg_max(gone, commit))"


def gone_sentences(upto: int | None = None) -> str:
    """Return SQL for the contents of sentences all of whose documents are gone. Free while nothing is superseded."""
    where = "" if upto is None else f" AND commit <= {upto}"
    touched = f"SELECT content FROM sentences WHERE document_id IN {gone_documents(upto)}{where}"
    return (
        f"(SELECT content FROM sentences WHERE content IN ({touched}){where} GROUP BY content "
        f"HAVING bool_and(document_id IN {gone_documents(upto)}))"
    )


def note_lost_parts(lake: Lake, source: str, parts: Sequence[str]) -> None:
    """Store ``parts`` (units) that files of ``source`` no longer have, for the next `supersede` on this connection."""
    lake.execute(_LOST)
    if parts:
        lake.execute("INSERT INTO lost SELECT unnest(?::VARCHAR[]), ?", (parts, source))


def supersede(lake: Lake, begin: Callable[[], int]) -> int:
    """Mark documents that re-read or lost units no longer contain as gone; return how many documents are gone.

    Quarantine rows of a unit that was read again stay only if the fault was found again. One pass over ``inputs``; if
    anything was read again, two over ``documents`` and one over each table with second rows, all in one transaction.
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
        for table, key in _KEYS.items():  # the first of repeated rows stays, from which older versions were cut
            lake.execute(
                f"DELETE FROM {table} WHERE ({key}, commit) IN (SELECT {key}, commit FROM {table} WHERE document_id IN "
                "(SELECT document_id FROM compared WHERE n > 1) "
                f"QUALIFY commit > min(commit) OVER (PARTITION BY {key}))"
            )
        lake.execute("UPDATE documents SET unit = c.unit, metadata = c.metadata FROM compared c WHERE c.document_id = "
                     "documents.document_id AND (c.unit IS DISTINCT FROM documents.unit OR "
                     "c.metadata IS DISTINCT FROM documents.metadata)")  # fmt: skip
        lake.execute(
            "DELETE FROM quarantine WHERE stage = 'ingest' AND EXISTS (SELECT 1 FROM reread r WHERE "
            "r.unit = quarantine.payload_ref AND quarantine.commit < r.commit)"
        )
        lake.execute("INSERT INTO rereads (unit, commit) SELECT unit, commit FROM reread")
        lake.execute("DROP TABLE lost")
        return lake.query("SELECT count(*) FROM superseded WHERE gone AND commit = ?", (commit,))[0][0]

    return lake.retrying(body)


def _compare(lake: Lake) -> None:
    """Create ``compared(document_id, n, held, unit)`` for documents of reread units and for gone documents.

    Gone documents are included because parts read for the first time may contain them. ``n``: number of readings.
    ``held``: whether any unit still contains the document. ``unit`` and ``metadata``: its last ones. A unit that was
    not read again still contains its documents, unless they were gone before.
    """
    readings = (
        "SELECT document_id, unit, metadata, d.commit, "
        "coalesce(d.commit = r.commit, d.commit > g.commit, true) AS holds "
        "FROM documents d LEFT JOIN reread r USING (unit) LEFT JOIN (SELECT document_id, max(commit) AS commit "
        f"FROM superseded WHERE document_id IN {gone_documents()} GROUP BY document_id) g USING (document_id)"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE compared AS SELECT document_id, count(*) AS n, bool_or(holds) AS held, "
        "arg_max(unit, (holds, commit)) AS unit, arg_max(metadata, (holds, commit)) AS metadata "
        f"FROM ({readings}) WHERE document_id IN (SELECT document_id "
        f"FROM documents SEMI JOIN reread USING (unit) UNION ALL {gone_documents()}) GROUP BY document_id"
    )
