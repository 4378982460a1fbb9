"""Compare two versions of a dataset: which pairs entered, left or changed, and why.

Only pairs count: an image that both versions dropped, by whatever rule, is not a change.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.terms import text_columns

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Change:
    """Number ``n`` of differing pairs of one ``kind`` with one ``cause``.

    - 'entered': the cause is the rule by which the earlier version dropped the image, 'new' if it did not have the
      image;
    - 'left': the cause is the rule by which the later version drops the image, 'gone' if it no longer has the image;
    - 'changed': the cause is the columns whose values differ, as in 'text1, text2'.
    """

    kind: str
    cause: str
    n: int


def changes(lake: Lake, before: Dataset, after: Dataset) -> list[Change]:
    """Count the pairs that entered, left and changed, by cause; within a kind, most frequent first."""
    sql = f"SELECT kind, cause, count(*) AS n FROM ({changed(before, after)}) GROUP BY ALL"
    rows = lake.query(
        f"SELECT * FROM ({sql}) ORDER BY list_position(['entered', 'left', 'changed'], kind), n DESC, cause"
    )
    return [Change(*row) for row in rows]


def changed_images(lake: Lake, before: Dataset, after: Dataset, change: Change, most: int) -> list[dict[str, Any]]:
    """Select at most ``most`` images (image_id, sha256) of one kind and cause, those with the smallest ids."""
    of_cause = f"kind = {quoted(change.kind)} AND cause = {quoted(change.cause)}"
    ids = f"SELECT item_id FROM ({changed(before, after)}) WHERE {of_cause} ORDER BY item_id LIMIT {most}"
    sql = f"SELECT image_id, any_value(sha256) AS sha256 FROM images WHERE image_id IN ({ids})"
    return lake.rows(f"{sql} GROUP BY image_id ORDER BY image_id")


def changed_ids(lake: Lake, before: Dataset, after: Dataset, kind: str, cause: str) -> "pa.Table":
    """Return the ``image_id`` of every image of one kind and cause."""
    of_cause = f"kind = {quoted(kind)} AND cause = {quoted(cause)}"
    return lake.table(f"SELECT item_id AS image_id FROM ({changed(before, after)}) WHERE {of_cause}")


def changed(before: Dataset, after: Dataset) -> str:
    """Return SQL for ``item_id``, ``kind`` and ``cause`` (see `Change`) of every image whose pair differs."""
    n = max(before.n_texts, after.n_texts)
    compared = (
        "raw_image_url", *text_columns.texts(n), "syn_text", "caption", "alt_text", "tags", "width", "height",
        *text_columns.similarities(n), "best_similarity", "cluster",
    )  # fmt: skip
    differing = ", ".join(f"CASE WHEN a.{name} IS DISTINCT FROM b.{name} THEN '{name}' END" for name in compared)
    return f"""WITH met AS MATERIALIZED (
        SELECT coalesce(a.image_id, b.image_id) AS item_id, if(a.image_id IS NULL, 'entered',
            if(b.image_id IS NULL, 'left', 'changed')) AS kind, concat_ws(', ', {differing}) AS columns
        FROM (SELECT * FROM pairs WHERE {_version_filter(before)}) a
            FULL JOIN (SELECT * FROM pairs WHERE {_version_filter(after)}) b
        ON a.image_id = b.image_id)
    SELECT item_id, kind, columns AS cause FROM met WHERE kind = 'changed' AND columns <> ''
    UNION ALL {_with_cause("entered", before, "new")} UNION ALL {_with_cause("left", after, "gone")}"""


def _with_cause(kind: str, other: Dataset, unknown: str) -> str:
    """Return SQL for the pairs that only one version has, with the rule by which the ``other`` version dropped them."""
    alone = f"SELECT item_id FROM met WHERE kind = '{kind}'"
    of_other = f"{_version_filter(other)} AND kind = 'image' AND item_id IN ({alone})"
    said = f"SELECT item_id, dropped_by FROM decisions WHERE {of_other}"
    return (
        f"SELECT m.item_id, m.kind, coalesce(nullif(d.dropped_by, ''), '{unknown}') FROM met m LEFT JOIN ({said}) d "
        f"ON d.item_id = m.item_id WHERE m.kind = '{kind}'"
    )


def _version_filter(dataset: Dataset) -> str:
    """Return the SQL condition for the rows of a dataset version."""
    return f"dataset = {quoted(dataset.name)} AND version = {dataset.version}"
