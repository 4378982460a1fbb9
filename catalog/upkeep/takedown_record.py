"""Record takedowns: what was asked, the bans that keep it out, and the report; list the exports that hold it."""

import json
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.upkeep.taken_items import Subject


def begin(lake: Lake, takedown_id: str, commit: int, report: dict[str, Any]) -> None:
    """Record a removal within its transaction; ``report["erased"]["why"]`` says that its bytes are not erased yet."""
    text = json.dumps(report, sort_keys=True)
    lake.execute("INSERT INTO takedowns VALUES (?, ?, ?, ?, now())", (takedown_id, report["reason"], text, commit))


def finish(lake: Lake, takedown_id: str, report: dict[str, Any]) -> None:
    """Record the report of a removal. It is done unless ``report["erased"]["why"]`` says what hindered it."""
    text = json.dumps(report, sort_keys=True)
    lake.retrying(lambda: lake.execute("UPDATE takedowns SET report = ? WHERE takedown_id = ?", (text, takedown_id)))


def unfinished(lake: Lake) -> dict[str, dict[str, Any]]:
    """Return removal -> its report so far, of those that were killed or hindered before all bytes were erased."""
    hindered = "coalesce(json_extract_string(nullif(report, ''), '$.erased.why'), 'no report') <> ''"
    found = lake.query(f"SELECT takedown_id, report FROM takedowns WHERE {hindered}")
    return {takedown_id: json.loads(report or "{}") for takedown_id, report in found}


def ban(lake: Lake, takedown_id: str, reason: str, subject: Subject, hashes: Iterable[int]) -> None:
    """Ban what ``subject`` names, the taken pictures, and perceptual ``hashes``; what is banned already stays so."""
    lake.execute(
        "INSERT INTO bans SELECT sha256, ?, now() FROM (SELECT sha256 FROM taken_pictures UNION SELECT value FROM "
        "asked_pictures) ANTI JOIN bans USING (sha256)",
        (reason,),
    )
    values = [("address", each) for each in (*subject.urls, *(host.lower() for host in subject.hosts))]
    values += [("phash", str(each)) for each in hashes]
    columns = {"kind": [kind for kind, _ in values], "value": [value for _, value in values]}
    lake.connection.register(
        "new_bans", pa.table({name: pa.array(each, pa.string()) for name, each in columns.items()})
    )
    # By the address too: another reader gives the same page another id.
    documents = (
        "SELECT 'document' AS kind, document_id AS value FROM taken_documents UNION ALL "
        "SELECT 'uri' AS kind, uri AS value FROM documents SEMI JOIN taken_documents USING (document_id)"
    )
    lake.execute(
        "INSERT INTO taken_bans SELECT kind, value, ? FROM "
        f"(SELECT kind, value FROM new_bans UNION {documents}) ANTI JOIN taken_bans USING (kind, value)",
        (takedown_id,),
    )
    lake.connection.unregister("new_bans")


def exports_of(lake: Lake, versions: Iterable[tuple[str, int]]) -> list[dict[str, Any]]:
    """Return the exports of these versions, which still hold what was taken down."""
    found = []
    for dataset, version in versions:
        sql = "SELECT DISTINCT format, uri FROM exports WHERE dataset = ? AND version = ? ORDER BY ALL"
        rows = lake.query(sql, (dataset, version))
        found += [{"dataset": f"{dataset}@{version}", "format": kind, "uri": uri} for kind, uri in rows]
    return found


def near_hash(lake: Lake, phash: int, bits: int) -> list[tuple[str, str, int]]:
    """Return (sha256, an address, Hamming distance) of pictures within ``bits`` of a perceptual hash, nearest first.

    One pass over ``image_hash``: 30 million take seconds.
    """
    near = f"SELECT DISTINCT sha256, bit_count(xor(phash, {phash}::UBIGINT)) AS distance FROM image_hash " \
           "WHERE phash IS NOT NULL"  # fmt: skip
    return lake.query(
        f"SELECT sha256, min(url), min(distance) AS d FROM ({near}) n JOIN images USING (sha256) "
        f"WHERE distance <= {bits} GROUP BY sha256 ORDER BY d, sha256"
    )
