"""List the edits that changed the texts of a dataset version, and preview a new one before it is stored."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.cut.edits import changed_text, read_edits, with_edits
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.write.act_queue import waiting_rows
from pairmill.catalog.write.acts import VERDICTS, acts_of, current_acts, current_verdicts, with_waiting

SHOWN = 10
_NEWEST = 2**62  # the commit number of an edit that has none yet


@dataclass(frozen=True)
class EditPreview:
    """Number of pairs whose text an edit would change, and (image id, text before, text after) of SHOWN of them."""

    changed: int
    examples: tuple[tuple[str, str | None, str | None], ...]


def preview_edit(lake: Lake, dataset: Dataset, field: str) -> EditPreview:
    """Apply the stored edits of a version's dataset, then the new one of ``new_acts``, to the version's pairs.

    Creates ``edit_before(sha256, before)``: the named pictures' texts before all edits. 1M pairs take a second.
    """
    made = f"""(SELECT p.* REPLACE (CASE WHEN e.image_id IS NULL THEN p.{field} ELSE e.before END AS {field}) FROM
        (SELECT * FROM pairs WHERE {dataset.where}) p LEFT JOIN (SELECT image_id, before FROM edited_texts WHERE
        {dataset.where} AND field = '{field}') e ON e.image_id = p.image_id)"""
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE edit_before AS SELECT sha256, any_value({field}) AS before FROM {made}
        WHERE sha256 IN (SELECT sha256 FROM temp.new_acts) GROUP BY sha256""")
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


def edited_texts(lake: Lake, dataset: Dataset, image_id: str) -> list[dict[str, Any]]:
    """Return what edits changed in a version's pair: one dict a text with ``field``, ``before`` and ``acts``.

    ``before`` is the text as it was made; ``acts`` are the rows of `acts` that changed it, oldest first, without those
    that a takedown removed since.
    """
    found = lake.rows(
        f"SELECT field, before FROM edited_texts WHERE {dataset.where} AND image_id = ? ORDER BY field", (image_id,)
    )
    if not found:
        return []
    picture = f"SELECT sha256 FROM images WHERE image_id = {quoted(image_id)}"
    acts = lake.rows(
        'SELECT act_id, act, field, pattern, value, who, "at" FROM '
        f"({current_acts(dataset.name, dataset.commit)}) WHERE (sha256 IS NULL OR sha256 IN ({picture})) "
        "AND field <> '' ORDER BY \"commit\""
    )
    for each in found:
        text, each["acts"] = each["before"], []
        for act in acts:
            new = text
            if act["field"] == each["field"] and act["act"] == "edit":
                new = act["value"]
            elif act["field"] == each["field"] and text is not None:
                new = lake.query(f"SELECT {changed_text(act['act'], act['pattern'], act['value'], quoted(text))}")[0][0]
            if new != text:
                each["acts"].append(act)
            text = new
    return found


def verdicts_on(lake: Lake, dataset: Dataset, sha256: str) -> list[dict[str, Any]]:
    """Return people's verdicts on a picture, oldest first, also those that no version has yet.

    One dict each: ``act_id``, ``act``, ``word``, ``who``, ``at``, ``before`` (the picture's fate then), ``is_undone``,
    ``is_in``: the version has it; an act that is undone is in none.
    """
    undone = "SELECT act_id FROM acts WHERE act = 'undo'"
    return lake.rows(
        f'SELECT act_id, act, value AS word, who, "at", before, act_id IN ({undone}) AS is_undone, '
        f'"commit" <= {dataset.commit} AND act_id NOT IN ({undone} AND "commit" <= {dataset.commit}) AS is_in '
        f'FROM acts WHERE dataset = ? AND sha256 = ? AND act IN {VERDICTS} ORDER BY "commit"',
        (dataset.name, sha256),
    )


def fates_of(lake: Lake, dataset: Dataset, sha256s: list[str]) -> dict[str, str]:
    """Return what the version decided on each of these pictures that the lake knows, by sha256.

    A value is 'kept', the name of the rule that dropped the picture, or 'not decided'.
    """
    sql = f"""SELECT sha256, min(dropped_by) FROM (SELECT * FROM images WHERE sha256 IN (SELECT unnest(?::VARCHAR[])))
        LEFT JOIN (SELECT item_id AS image_id, dropped_by FROM decisions WHERE {dataset.where}) USING (image_id)
        GROUP BY sha256 ORDER BY sha256"""
    rows = lake.query(sql, (sha256s,))
    return {sha256: "not decided" if fate is None else fate or "kept" for sha256, fate in rows}


def marks_on(lake: Lake, dataset: str, sha256s: list[str]) -> dict[str, str]:
    """Return what people decided about each of these pictures, by sha256, as 'keep, tag to check'.

    Acts that wait, and acts that no version has yet, count.
    """
    if not waiting_rows(lake) and not lake.query("SELECT 1 FROM acts LIMIT 1"):  # 3 ms instead of 17
        return {}
    among = "sha256 IN (SELECT unnest(?::VARCHAR[])) AND act <> 'untag'"
    sql = f"""SELECT sha256, string_agg(replace(act, '_', ' ') || coalesce(' ' || word, ''), ', ' ORDER BY act, word)
        FROM ({{}}) WHERE {among} GROUP BY sha256"""
    return dict(with_waiting(lake, lambda rows: lake.query(
        sql.format(current_verdicts(dataset, rows=rows)), (sha256s,)
    )))  # fmt: skip


def describe_edits(lake: Lake, dataset: Dataset) -> list[str]:
    """Return lines on the edits in a version, without names of people: numbers of changed texts, and each edit."""
    counts = f"SELECT field, count(*) FROM edited_texts WHERE {dataset.where} GROUP BY field ORDER BY field"
    lines = [f"edited {field}: {n} pairs" for field, n in lake.query(counts)]
    acts = [act for act in acts_of(lake, dataset.name, dataset.commit) if not act.is_undone]
    lines += [f"edit of {act}" for act in acts if act.field] if lines else []
    return lines + [f"by hand: {act}" for act in acts if not act.field]
