"""Show what a new edit of texts would change in a dataset version, before it is stored."""

from dataclasses import dataclass

from pairmill.catalog.cut.edits import read_edits, with_edits
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset

SHOWN = 10
_NEWEST = 2**62  # the commit number of an edit that has none yet


@dataclass(frozen=True)
class EditPreview:
    """Number of pairs whose text an edit would change, and (image id, text before, text after) of SHOWN of them."""

    changed: int
    examples: tuple[tuple[str, str | None, str | None], ...]


def preview_edit(lake: Lake, dataset: Dataset, field: str) -> EditPreview:
    """Apply the stored edits of a version's dataset, then the new one of ``new_acts``, to the version's pairs.

    Creates the table ``edit_before(sha256, before)`` of the texts as they were made, before all edits, of the pictures
    that the new edit names. 1M pairs take a second.
    """
    made = (
        f"(SELECT p.* REPLACE (CASE WHEN e.image_id IS NULL THEN p.{field} ELSE e.before END AS {field}) FROM "
        f"(SELECT * FROM pairs WHERE {dataset.where}) p LEFT JOIN (SELECT image_id, before FROM edited_texts WHERE "
        f"{dataset.where} AND field = '{field}') e ON e.image_id = p.image_id)"
    )
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE edit_before AS SELECT sha256, any_value({field}) AS before FROM {made} "
        "WHERE sha256 IN (SELECT sha256 FROM temp.new_acts) GROUP BY sha256"
    )
    read_edits(lake, dataset.name)
    _text_of_each(lake, "edit_from", made, field)
    read_edits(lake, dataset.name, beside=f'SELECT *, {_NEWEST} AS "commit" FROM temp.new_acts')
    _text_of_each(lake, "edit_to", made, field)
    changed = "temp.edit_from f JOIN temp.edit_to t USING (image_id) WHERE f.text IS DISTINCT FROM t.text"
    n = lake.query(f"SELECT count(*) FROM {changed}")[0][0]
    rows = lake.query(f"SELECT image_id, f.text, t.text FROM {changed} ORDER BY sha256(image_id) LIMIT {SHOWN}")
    lake.execute("DROP TABLE temp.edit_from; DROP TABLE temp.edit_to")
    return EditPreview(n, tuple(rows))


def _text_of_each(lake: Lake, table: str, made: str, field: str) -> None:
    """Create ``table(image_id, text)`` of the texts after the edits in ``edits_read``."""
    edited, _ = with_edits(lake, made, (field,))
    lake.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS SELECT image_id, {field} AS text FROM ({edited})")
