"""Read a captioner's good captions in an append-only order, and record their exports."""

from datetime import UTC, datetime

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.worklist import payload_paths
from pairmill.catalog.queries.export.origins import licences, web_hosts

CAPTION_COLUMNS = ("sha256", "url", "caption", "status", "n_tokens", "captioner", "prompt", "scorer", "alt_text",
                   "width", "height", "occurrences")  # fmt: skip


def gather(lake: Lake, scorer: str) -> None:
    """Copy captions with status ok, of images in current documents, into a temporary table of this connection.

    One row per distinct image, numbered from 0 by commit, shard and sha256, so that a later run's rows come after.
    ``url`` is the released address of the image's occurrence with the smallest id, ``occurrences`` the number of
    occurrences. ``url`` and ``alt_text`` are '' where there is none: a column that is NULL in a tar's first samples and
    a text later stops `datasets`. ``sample_bytes`` is an upper bound of the size of a tar sample: bytes, texts, three
    headers with padding.
    """
    held = (
        "SELECT i.*, count(*) OVER (PARTITION BY i.sha256) AS occurrences FROM images i "
        f"ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id "
        f"SEMI JOIN (SELECT sha256 FROM captions WHERE scorer = '{scorer}') m ON m.sha256 = i.sha256 "
        "QUALIFY row_number() OVER (PARTITION BY i.sha256 ORDER BY i.image_id) = 1"
    )
    lake.execute(
        f"""CREATE OR REPLACE TEMP TABLE caption_rows AS
        SELECT m.sha256, coalesce(i.raw_image_url, '') AS url, m.text AS caption, m.status, m.n_tokens, m.captioner,
            m.prompt, m.scorer, coalesce(i.alt_text, '') AS alt_text, c.width, c.height, i.occurrences, c.format,
            c.shard,
            row_number() OVER (ORDER BY m."commit", m.shard, m.sha256) - 1 AS n,
            coalesce(c.n_bytes, 0) + 2 * strlen(m.text) + strlen(m.prompt) + coalesce(strlen(i.alt_text), 0)
                + coalesce(strlen(i.raw_image_url), 0) + 8192 AS sample_bytes
        FROM captions m JOIN {with_released_address(held)} i ON i.sha256 = m.sha256
            JOIN image_content c ON c.sha256 = m.sha256
        WHERE m.scorer = '{scorer}' AND m.status = 'ok' ORDER BY n"""
    )


def sizes(lake: Lake) -> np.ndarray:
    """Return ``sample_bytes`` of the gathered captions in order: int64, 8 bytes per caption."""
    return lake.table("SELECT sample_bytes FROM caption_rows ORDER BY n")["sample_bytes"].to_numpy().astype(np.int64)


def digest(lake: Lake, first: int, last: int) -> str:
    """Hash the exported columns of the gathered rows number ``first`` to ``last`` - 1."""
    rows = f"SELECT n, {', '.join(CAPTION_COLUMNS)} FROM caption_rows WHERE n >= ? AND n < ?"
    sql = f"SELECT bit_xor(md5_number(CAST(to_json(r) AS VARCHAR))) FROM ({rows}) r"
    return str(lake.query(sql, (first, last))[0][0] or 0)


def portion(lake: Lake, first: int, last: int) -> pa.Table:
    """Return the gathered rows number ``first`` to ``last`` - 1: CAPTION_COLUMNS, ``shard`` and ``format``."""
    names = ", ".join((*CAPTION_COLUMNS, "shard", "format"))
    return lake.table(f"SELECT {names} FROM caption_rows WHERE n >= ? AND n < ? ORDER BY n", (first, last))


def picture_paths(lake: Lake, first: int) -> dict[str, tuple[str, ...]]:
    """Return, by shard, the files with the image bytes of the rows from number ``first`` on."""
    shards = [row[0] for row in lake.query("SELECT DISTINCT shard FROM caption_rows WHERE n >= ?", (first,))]
    return payload_paths(lake, "payloads", shards)


def origins(lake: Lake) -> tuple[list[str], list[str]]:
    """Return the web hosts of the gathered pictures, and the licences that came along with their documents."""
    documents = "SELECT DISTINCT document_id FROM images SEMI JOIN caption_rows USING (sha256)"
    return web_hosts(lake, "SELECT url FROM caption_rows"), licences(lake, documents)


def captioned_at(lake: Lake, scorer: str) -> datetime:
    """Return when the newest caption of ``scorer`` was committed; the time of now where no commit is on record."""
    newest = "SELECT max(commit) FROM captions WHERE scorer = ?"
    rows = lake.query(f'SELECT "at" FROM commits WHERE commit = ({newest})', (scorer,))
    return rows[0][0] if rows else datetime.now(UTC)


def release(lake: Lake) -> None:
    """Drop the table that `gather` created."""
    lake.execute("DROP TABLE IF EXISTS temp.caption_rows")


def record(lake: Lake, scorer: str, format: str, uri: str, files: int, rows: int, n_bytes: int) -> None:
    """Insert or replace the row in ``exports`` for this captioner, format and location.

    It has dataset 'captions DIGEST' and version 0. The caller holds the lease.
    """

    def body() -> None:
        key = (f"captions {scorer}", 0, format, uri)
        lake.execute("DELETE FROM exports WHERE dataset = ? AND version = ? AND format = ? AND uri = ?", key)
        row = (*key, files, rows, n_bytes, datetime.now(UTC))
        lake.execute("INSERT INTO exports VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    lake.retrying(body)
