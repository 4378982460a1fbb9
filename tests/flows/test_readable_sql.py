"""SQL that people can read: comments, vectors, decisions on sentences, and the queries of the docs."""

import json
import re
from pathlib import Path

import duckdb
import numpy as np
import pytest

import pairmill as pm
from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.opening import create_or_open
from pairmill.flows.command.cli import main
from tests.worlds.commands import Tell
from tests.worlds.line import rows

DOCS = Path(__file__).resolve().parents[2] / "infra" / "docs"
QUERIES = re.findall(r"```sql\n((?!ATTACH).*?);\n```", (DOCS / "queries.md").read_text(encoding="utf-8"), re.DOTALL)
# Commands on all pages, but those on a score or an export that only the page's own steps make.
COMMANDS = sorted({
    query.replace('\\"', '"')
    for page in DOCS.glob("*.md")
    for query in re.findall(r'^pairmill sql "(.*)" --lake', page.read_text(encoding="utf-8"), re.MULTILINE)
    if "colours" not in query and ".parquet" not in query
})  # fmt: skip


def plain(lake: Path) -> duckdb.DuckDBPyConnection:
    """Open a lake as the docs tell users of plain DuckDB."""
    connection = connect("ducklake", "sqlite_scanner")
    lines = re.findall(r"```sql\n(ATTACH.*?;)\n(USE.*?;)", (DOCS / "queries.md").read_text(encoding="utf-8"))[0]
    for line in lines:
        connection.execute(line.replace("lake/", f"{lake}/"))
    return connection


def test_plain_duckdb_shows_what_every_table_and_column_holds(curated: Path):
    own = "database_name = 'lake' AND schema_name = 'main'"
    with plain(curated) as connection:
        tables = dict(connection.execute(f"SELECT table_name, comment FROM duckdb_tables() WHERE {own}").fetchall())
        found = connection.execute(
            f"SELECT table_name, column_name, comment FROM duckdb_columns() WHERE {own} AND table_name IN "
            f"(SELECT table_name FROM duckdb_tables() WHERE {own})"
        ).fetchall()
    assert len(tables) > 60 and len(found) > 400
    assert [name for name, comment in tables.items() if not comment] == []
    assert [(table, name) for table, name, comment in found if not comment] == []
    meanings = {(table, name): comment for table, name, comment in found}
    assert meanings["pairs", "text1"] == "the sentence nearest to the picture"
    assert "Laplacian" in meanings["image_quality", "sharpness"]


@pytest.mark.slow
def test_maintain_describes_a_lake_that_lacks_it_and_opening_does_not(curated_copy: Path, tell: Tell):
    with create_or_open(curated_copy) as lake:
        lake.execute("COMMENT ON COLUMN pairs.text1 IS NULL")
        lake.execute("DROP MACRO similarity")
    snapshots = rows(curated_copy, "SELECT count(*) FROM lake.snapshots()")
    create_or_open(curated_copy).close()
    assert rows(curated_copy, "SELECT count(*) FROM lake.snapshots()") == snapshots
    place = ("--lake", str(curated_copy))
    # an older lake answers here all the same
    assert "1.0" in tell("sql", "SELECT round(similarity(image_vector, image_vector), 3) FROM image_embedding", *place)
    assert "described tables and columns: " in tell("maintain", *place)
    with plain(curated_copy) as connection:
        assert connection.execute("SELECT round(similarity('\\x00\\x3C'::BLOB, '\\x00\\x3C'::BLOB), 4)").fetchall()
    assert "described" not in tell("maintain", *place)


def test_macros_read_half_precision_numbers_exactly(curated: Path):
    values = np.array([0, 1, -1, 0.5, 65504, 6e-8, -6.1e-5, 0.3333, -2.718], "<f2")
    with plain(curated) as connection:
        found = connection.execute("SELECT vector_values($1::BLOB)", [values.tobytes()]).fetchall()[0][0]
    assert found == values.astype(float).tolist()


def test_the_nearest_pictures_of_an_id_are_those_of_numpy(curated: Path):
    stored = dict(rows(curated, "SELECT sha256, image_vector FROM image_embedding WHERE image_vector IS NOT NULL"))
    names = sorted(stored)
    vectors = np.stack([np.frombuffer(stored[name], "<f2") for name in names]).astype(np.float64)

    def nearest(query: np.ndarray, but: str = "") -> dict[str, float]:
        found = vectors @ query
        best = [at for at in np.argsort(-found, kind="stable") if names[at] != but][:5]
        return {names[at]: round(float(found[at]), 3) for at in best}

    image, sha256 = rows(curated, "SELECT image_id, sha256 FROM pairs ORDER BY image_id LIMIT 1")[0]
    sql = "SELECT sha256, round(similarity, 3) FROM {} ORDER BY similarity DESC"
    with plain(curated) as connection:
        for key in (image, sha256):
            found = connection.execute(sql.format(f"nearest_pictures('{key}', n := 5)")).fetchall()
            assert dict(found) == pytest.approx(nearest(vectors[names.index(sha256)], sha256), abs=0.002)
    with pm.open(curated) as lake:
        found = lake.sql(sql.format(f"nearest_pictures('{image}', n := 5)")).fetchall()
    assert dict(found) == pytest.approx(nearest(vectors[names.index(sha256)], sha256), abs=0.002)


@pytest.mark.slow
def test_decisions_on_sentences_are_those_of_the_funnel_and_of_why(curated: Path):
    with pm.open(curated) as lake:
        counts = dict(lake.sql("SELECT dropped_by, count(*) FROM sentence_decisions GROUP BY ALL").fetchall())
        funnel = lake.sql("SELECT rule, n_dropped FROM funnel WHERE kind = 'sentence' AND rule <> 'same_text'")
        assert {rule: n for rule, n in funnel.fetchall() if n} == {rule: n for rule, n in counts.items() if rule}
        one_each = "SELECT DISTINCT ON (dropped_by) item_id, dropped_by, value FROM sentence_decisions ORDER BY item_id"
        for item, dropped_by, value in lake.sql(one_each).fetchall():
            told = lake.why(item)["decision"]
            assert told["dropped_by"] == dropped_by
            assert dropped_by != "duplicate" or told["value"] == value


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_of_the_docs_is_answered(curated: Path, query: str, capsys: pytest.CaptureFixture[str]):
    assert main(["sql", query, "--lake", str(curated), "--format", "json"]) == 0
    assert capsys.readouterr().out.count('": ') >= 2, "no row"
    if "sentence_decisions" not in query:  # ours alone
        with plain(curated) as connection:
            assert connection.execute(query).fetchall()


@pytest.mark.parametrize("query", COMMANDS)
def test_every_query_of_a_command_in_the_docs_is_answered(curated: Path, query: str, tell: Tell):
    assert json.loads(tell("sql", query, "--lake", str(curated), "--format", "json")) is not None
