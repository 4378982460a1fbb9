"""Every table declares by which columns a removal finds its rows, and just those rows go."""

from pathlib import Path

import pyarrow as pa
import pytest

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.schema import columns
from pairmill.catalog.lake.score_tables import scores_in
from pairmill.catalog.lake.table_meanings import removed_by
from pairmill.catalog.upkeep import taken_items
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.catalog.write import lease
from tests.worlds.kept_tables import NOT_REMOVED
from tests.worlds.shared import opened_new

URL = "https://example.org/taken.jpg"
NAMED = {"picture": "p", "image": "i", "document": "d", "sentence": "c", "text": "a taken text", "unit": "u",
         "own": "an alt text", "address": URL}  # fmt: skip


def test_every_table_says_by_which_columns_its_rows_are_removed_or_why_none_are(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake:
        scores = {score.table for score in scores_in(lake)}
        stay = [table for tables in NOT_REMOVED.values() for table in tables]
        assert sorted([*removed_by(), *scores, *stay]) == sorted(lake.tables | scores)
    for table, of in removed_by().items():
        assert of.keys() <= columns(table).keys() and {kind for kinds in of.values() for kind in kinds.split()} <= {
            *NAMED
        }


@pytest.mark.slow
def test_a_row_goes_by_each_column_that_names_a_taken_item_and_all_others_stay(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as lake, lease.writing(lake, "run", "test") as writer:
        declared = removed_by() | {
            score.table: score.removed_by for score in scores_in(lake) if score.table in lake.tables
        }
        expected = {}
        # The taken document with its picture, one occurrence of another's, and a sentence of its own.
        made = {"documents": [{"document_id": "d", "uri": "page", "unit": "u"}],
                "images": [{"image_id": "i", "document_id": "d", "sha256": "p", "url": URL},
                           {"image_id": "j", "document_id": "d", "sha256": "other", "alt_text": "an alt text"}],
                "sentences": [{"document_id": "d", "content": "c", "text": "a taken text"}],
                "sentence_content": [{"content": "c", "text": "a taken text"}]}  # fmt: skip
        for table, of in declared.items():
            texts = [name for name, kind in columns(table).items() if kind == "VARCHAR"]
            other = dict.fromkeys(texts, "other")
            if table == "fetches":
                other["sha256"] = ""  # else what was fetched from the address is taken too
            named = [other | {column: NAMED[kind]} for column, kinds in of.items() for kind in kinds.split()]
            if table in made:
                named = [other | row for row in made[table]]
            expected[table] = len(named)
            lake.insert(table, pa.Table.from_pylist([other, *named], arrow_schema(table)))
        taken_items.select(lake, Subject(documents=("d",), urls=(URL,)))
        removed = lake.retrying(lambda: taken_items.delete_rows(lake, writer.begin("takedown")))
        assert removed == expected
        assert {lake.query(f"SELECT count(*) FROM {table}")[0][0] for table in declared} == {1}
