"""Read the output of a captioner: its first captions, counts by status, and the cost of a run's captions."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.cut.released_address import with_released_address
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.terms.demo_weights import demo_weights


@dataclass(frozen=True)
class Spent:
    """Cost of a run's committed captions: images, tokens, and the model's ``seconds``."""

    pictures: int
    tokens: int
    seconds: float


def spent(lake: Lake, run_id: str, scorer: str) -> Spent:
    """Sum the cost of the captions of ``scorer`` that run ``run_id`` has committed, without reading any caption."""
    sql = (
        "SELECT coalesce(sum(rows), 0), coalesce(sum(tokens), 0), coalesce(sum(seconds), 0) FROM usage "
        "WHERE run_id = ? AND scorer = ?"
    )
    pictures, tokens, seconds = lake.query(sql, (run_id, scorer))[0]
    return Spent(int(pictures), int(tokens), float(seconds))


def has_demo_weights(lake: Lake, scorer: str) -> bool:
    """Return whether the small shipped captioner made the captions of ``scorer``."""
    return bool(demo_weights(model for (model,) in lake.query("SELECT model FROM scorers WHERE digest = ?", (scorer,))))


def by_status(lake: Lake, scorer: str) -> dict[str, int]:
    """Count the captions of ``scorer`` by status, most frequent first, for images in current documents."""
    held = f"SELECT i.sha256 FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id"
    sql = (
        f"SELECT status, count(*) AS n FROM captions SEMI JOIN ({held}) h USING (sha256) WHERE scorer = ? "
        "GROUP BY status ORDER BY n DESC, status"
    )
    return dict(lake.query(sql, (scorer,)))


def count_uncaptioned(lake: Lake, scorer: str) -> int:
    """Count the images in current documents without a caption of ``scorer``."""
    held = f"SELECT i.sha256 FROM images i ANTI JOIN {gone_documents()} g ON g.document_id = i.document_id"
    made = "ANTI JOIN (SELECT sha256 FROM captions WHERE scorer = ?) USING (sha256)"
    return lake.query(f"SELECT count(*) FROM image_content SEMI JOIN ({held}) h USING (sha256) {made}", (scorer,))[0][0]


def first_captions(lake: Lake, scorer: str, n: int) -> list[dict[str, Any]]:
    """Return the first ``n`` captions of ``scorer`` in the order of their commits.

    Each has sha256, shard, text, status, n_tokens, seconds, and the image's ``address`` (NULL without a document).
    """
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
