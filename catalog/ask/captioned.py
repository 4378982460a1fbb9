"""Read what a captioner has made: the first captions, how many by status, and what a run has spent on them."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.superseded import gone_documents


@dataclass(frozen=True)
class Spent:
    """What a run's committed captions took: pictures, tokens, and the model's ``seconds``."""

    pictures: int
    tokens: int
    seconds: float


def spent(lake: Lake, run_id: str, scorer: str) -> Spent:
    """Sum the captions of ``scorer`` that run ``run_id`` has committed. Reads no caption."""
    sql = (
        "SELECT coalesce(sum(rows), 0), coalesce(sum(tokens), 0), coalesce(sum(seconds), 0) FROM usage "
        "WHERE run_id = ? AND scorer = ?"
    )
    pictures, tokens, seconds = lake.query(sql, (run_id, scorer))[0]
    return Spent(int(pictures), int(tokens), float(seconds))


def by_status(lake: Lake, scorer: str) -> dict[str, int]:
    """Count the captions of ``scorer`` by status, the most frequent first, of pictures that a document still holds."""
    held = f"SELECT i.sha256 FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id"
    sql = (
        f"SELECT status, count(*) AS n FROM captions SEMI JOIN ({held}) h USING (sha256) WHERE scorer = ? "
        "GROUP BY status ORDER BY n DESC, status"
    )
    return dict(lake.query(sql, (scorer,)))


def first_captions(lake: Lake, scorer: str, n: int) -> list[dict[str, Any]]:
    """Return the first ``n`` captions of ``scorer`` in the order in which they were made: sha256, shard, text, status,
    n_tokens, seconds, and the picture's ``address`` (NULL where no document of it is there)."""
    made = lake.table(
        "SELECT sha256, shard, text, status, n_tokens, seconds FROM captions WHERE scorer = ? "
        f'ORDER BY "commit", shard, sha256 LIMIT {n}',
        (scorer,),
    ).to_pylist()
    one_each = (
        "SELECT image_id, document_id, position, url, sha256 FROM images WHERE sha256 IN (SELECT unnest(?)) "
        "QUALIFY row_number() OVER (PARTITION BY sha256 ORDER BY image_id) = 1"
    )
    shown = f"SELECT sha256, raw_image_url FROM {with_released_address(one_each)}"
    addresses = dict(lake.query(shown, ([row["sha256"] for row in made],)))
    return [{**row, "address": addresses.get(row["sha256"])} for row in made]
