"""Asking a lake: sql in three formats, datasets, why."""

import csv
import hashlib
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from pairmill.catalog.lake.connection import connect
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.explain.why import scope_of
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.queries.sql.sql_answer import SYSTEM, _answer, check_lake_only, check_reads_only, confine
from pairmill.catalog.terms.error import BadQuery, LeavesLake
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.catalog.write import lease
from pairmill.flows.command.cli import main
from tests.worlds.commands import run_unread
from tests.worlds.escapes import FILES, TABLES
from tests.worlds.published import SENTENCES, picture, published

N = 12


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("read") / "lake"
    published(folder, pictures=N)
    return str(folder)


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def first(lake: str, sql: str) -> str:
    with create_or_open(lake, read_only=True) as opened:
        return opened.query(sql)[0][0]


AWKWARD = (
    "SELECT 1 AS n, 'a,\"b' AS t, NULL AS nothing, [1, 2] AS l, 'x'::BLOB AS b, 1.50::DECIMAL(5, 2) AS d, "
    "'nan'::DOUBLE AS x"
)


def test_csv_has_a_header_and_round_trips_awkward_values(capsys, lake: str):
    header, row = csv.reader(io.StringIO(asked(capsys, "sql", AWKWARD, "--format", "csv", "--lake", lake)))
    assert header == ["n", "t", "nothing", "l", "b", "d", "x"]
    assert row == ["1", 'a,"b', "", "[1, 2]", "78", "1.50", "nan"]


def test_json_is_a_list_of_objects_that_any_reader_takes(capsys, lake: str):
    found = json.loads(asked(capsys, "sql", AWKWARD, "--format", "json", "--lake", lake))
    assert found == [{"n": 1, "t": 'a,"b', "nothing": None, "l": [1, 2], "b": "78", "d": 1.5, "x": None}]
    assert json.loads(asked(capsys, "sql", "SELECT 1 WHERE false", "--format", "json", "--lake", lake)) == []


def test_csv_and_json_give_every_row_and_the_table_says_that_it_does_not(capsys, lake: str):
    many = "SELECT range AS n FROM range(5000)"
    assert len(asked(capsys, "sql", many, "--format", "csv", "--lake", lake).splitlines()) == 5001
    assert len(json.loads(asked(capsys, "sql", many, "--format", "json", "--lake", lake))) == 5000
    assert "the first 100 rows" in asked(capsys, "sql", many, "--lake", lake)


REFUSED = ["SELEC 1", "SELECT nope", "SELECT 'x'::INTEGER", "DROP TABLE images", "FROM nowhere", "", " ; ", "-- none"]


@pytest.mark.parametrize("sql", REFUSED)
def test_sql_that_duckdb_refuses_is_told_without_a_traceback(capsys, lake: str, sql: str):
    assert main(["sql", sql, "--lake", lake]) == 1
    assert capsys.readouterr().err.startswith("pairmill: ")
    assert first(lake, "SELECT count(*) FROM images") == N


def test_datasets_lists_every_version(capsys, lake: str):
    rows = list(csv.DictReader(io.StringIO(asked(capsys, "datasets", "--lake", lake, "--format", "csv"))))
    assert [row["dataset"] for row in rows] == ["small@1"]
    assert rows[0]["pairs"] == str(first(lake, "SELECT n_pairs FROM datasets"))


@pytest.mark.parametrize("name", ["image_id", "sha256", "url", "file", "long sha256"])
def test_why_knows_an_image_by_any_of_its_names(capsys, lake: str, name: str):
    image_id, sha256 = text_id("image", "5"), content_id(picture(5))
    names = {"image_id": image_id, "sha256": sha256, "url": "https://example.org/5.jpg", "file": "5.jpg",
             "long sha256": sha256 + 32 * "0"}  # fmt: skip
    told = asked(capsys, "why", names[name], "--lake", lake)
    assert f"image {image_id}" in told and sha256 in told
    assert "sharpness" in told
    for line in ("rule      keeps  short_side: (least(width, height) >= 40)  height 65, width 80", "match     0.5"):
        assert line in told


@pytest.fixture(scope="module")
def stories(lake: str) -> dict[str, dict]:
    """What `why` knows of every image of the lake."""
    with create_or_open(lake, read_only=True) as opened:
        seen = scope_of(opened, datasets.find(opened, "small"))
        image_ids = [row[0] for row in opened.query("SELECT image_id FROM images")]
        return {image_id: explain_image(opened, image_id, seen) for image_id in image_ids}


def test_why_tells_decision_rules_and_the_place_in_the_cluster_as_the_cut_took_them(
    lake: str, stories: dict[str, dict]
):
    fates = [story["decision"]["dropped_by"] for story in stories.values()]
    assert set(fates) == {"", "short_side", "balance"}
    for story, fate in zip(stories.values(), fates, strict=True):
        kept = {rule["rule"]: rule["kept"] for rule in story["rules"]}
        assert kept == {"readable": True, "short_side": fate != "short_side"}
        assert ("rank" in story["cluster"]) == (fate != "short_side")
        assert story["cluster"]["cap"] == 3
        if "rank" in story["cluster"]:
            assert (story["cluster"]["rank"] > 3) == (fate == "balance")
    # Nobody ranked them again: the cut's own word, against an order made here.
    seed = first(lake, "SELECT json_extract_string(recipe, 'seed') FROM datasets")
    survivors: dict[int, list[str]] = {}
    for image_id, story in stories.items():
        if "rank" in story["cluster"]:
            survivors.setdefault(story["cluster"]["cluster"], []).append(image_id)
    for members in survivors.values():
        drawn = {each: f"{stories[each]['origin']['sha256']}{seed}" for each in members}
        members.sort(key=lambda image_id: hashlib.sha256(drawn[image_id].encode()).hexdigest())
        places = [(stories[each]["cluster"]["rank"], stories[each]["cluster"]["survivors"]) for each in members]
        assert places == [(place, len(members)) for place in range(1, len(members) + 1)]


def test_why_marks_the_matches_that_became_texts(stories: dict[str, dict]):
    for story in stories.values():
        places = sorted(match["place"] for match in story["matches"] if match["place"])
        assert places == ([1, 2, 3] if story["decision"]["dropped_by"] == "" else [])


def test_why_knows_a_sentence_and_what_it_is_used_for(capsys, lake: str):
    told = asked(capsys, "why", text_id(SENTENCES[0]), "--lake", lake)
    pairs = first(lake, "SELECT n_pairs FROM datasets")
    assert SENTENCES[0] in told and "rule      keeps  length: (n_words BETWEEN 3 AND 81)  n_words 7" in told
    assert "occurs    1 times" in told and f"candidate of {N} pictures" in told
    assert f"dataset   small@1: in {pairs} pairs" in told and told.count("  used ") == pairs


def test_why_knows_a_page_with_its_pictures_and_what_became_of_them(capsys, lake: str, stories: dict[str, dict]):
    of_each_fate = {stories[text_id("image", str(n))]["decision"]["dropped_by"]: n for n in range(N)}
    assert len(of_each_fate) == 3
    for n in of_each_fate.values():
        image_id, page_id = text_id("image", str(n)), text_id("document", str(n))
        told = asked(capsys, "why", page_id, "--lake", lake).splitlines()
        assert told[0].split() == ["document", page_id, f"https://example.org/{n}.jpg"]
        picture_line = next(line for line in told if line.startswith("  image"))
        fell = stories[image_id]["decision"]["dropped_by"]
        assert image_id in picture_line and (f"dropped by {fell}" if fell else "kept") in picture_line
        assert "  sentences 0" in told


def test_why_tells_what_is_in_quarantine(capsys, lake: str):
    assert "truncated at 'ingest': jpeg: Premature end" in asked(capsys, "why", "broken.jpg", "--lake", lake)


@pytest.mark.slow
def test_report_writes_the_versions_page_copies_and_opens_it(
    capsys, lake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda address: opened.append(address) is None)
    (at,) = asked(capsys, "report", "small@1", "--lake", lake, "--open").splitlines()
    assert opened == [Path(at).as_uri()] and "small@1" in Path(at).read_text(encoding="utf-8")
    (copy,) = asked(capsys, "report", "small", "--lake", lake, "--to", str(tmp_path)).splitlines()
    assert Path(copy).parent == tmp_path and Path(copy).read_bytes() == Path(at).read_bytes()
    assert main(("report", "small@9", "--lake", lake)) == 1 and "has no version 9" in capsys.readouterr().err


def test_status_tells_runs_and_holdings_without_a_recipe(capsys, tmp_path: Path):
    with create_or_open(tmp_path / "lake"):
        pass
    told = asked(capsys, "status", "--lake", str(tmp_path / "lake"))
    assert "0 documents, 0 images, 0 sentences, 0 quarantine" in told
    assert "lease    free" in told and "no dataset yet" in told


def test_status_tells_who_writes_and_which_run_was_killed(capsys, tmp_path: Path):
    folder = str(tmp_path / "lake")
    with create_or_open(folder) as opened:
        for run_id in ("first", "second"):
            opened.execute("INSERT INTO runs VALUES (?, 'curate', 'demo', 'running', now(), NULL, '')", (run_id,))
        with lease.writing(opened, "second", "curate demo"):
            told = asked(capsys, "status", "--lake", folder).splitlines()
    states = {line.split()[1]: line.rsplit(", ", 1)[1] for line in told if line.startswith("run ")}
    assert states == {"first": "killed", "second": "running"}
    assert any(line.startswith("lease") and "run second, 'curate demo'" in line for line in told)
    assert "lease    free: nobody writes" in asked(capsys, "status", "--lake", folder)


@pytest.mark.parametrize("sql", ["LOAD json", "INSTALL httpfs", "SELECT 1; LOAD '/tmp/x.duckdb_extension'"])
@pytest.mark.parametrize("more", [[], ["--allow-files"]])
def test_sql_brings_no_extension_into_the_process(capsys, lake: str, sql: str, more: list[str]):
    assert main(["sql", sql, "--lake", lake, *more]) == 1
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and ("LOAD and INSTALL are refused" in told or "only a SELECT" in told)


def test_sql_says_which_extension_a_statement_would_need(capsys, lake: str):
    assert main(["sql", "SELECT current_setting('s3_region')", "--lake", lake]) == 1
    assert capsys.readouterr().err.endswith("needs DuckDB's extension 'httpfs', which is not loaded for this lake.\n")


@pytest.fixture(scope="module")
def confined(lake: str) -> Iterator[Lake]:
    with create_or_open(lake, read_only=True) as opened:
        confine(opened)
        yield opened


def answered(confined: Lake, sql: str) -> None:
    """Ask a lake as `answer_confined` does, which confines it once."""
    check_lake_only(confined, check_reads_only(confined, sql))
    list(_answer(confined, sql)[1])


@pytest.mark.parametrize("sql", FILES)
def test_sql_reads_no_file_but_the_lakes_and_writes_none_at_all(lake: str, confined: Lake, tmp_path: Path, sql: str):
    outside = tmp_path / "outside.csv"
    outside.write_text("secret\n1\n")
    files = sorted(Path(lake).rglob("*"))
    with pytest.raises(LeavesLake) as refused:
        answered(confined, sql.format(lake=lake, outside=outside, new=tmp_path / "new.csv"))
    assert "S3" not in str(refused.value) and "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [outside]
    assert sorted(Path(lake).rglob("*")) == files


@pytest.mark.parametrize("sql", TABLES)
def test_sql_reads_no_table_but_the_lakes(confined: Lake, sql: str):
    with pytest.raises(BadQuery) as refused:
        answered(confined, sql)
    assert "\n" not in str(refused.value)


def test_a_statement_that_leaves_the_lake_is_refused_in_one_line_with_the_option(capsys, lake: str, tmp_path: Path):
    (tmp_path / "outside.csv").write_text("secret\n1\n")
    files = (f"FROM read_csv('{tmp_path}/outside.csv')", f"COPY (SELECT 1) TO '{tmp_path}/new.csv'")
    for statement in (*files, TABLES[0]):
        assert main(["sql", statement, "--lake", lake]) == 1
        told = capsys.readouterr()
        assert not told.out and told.err.count("\n") == 1
        assert ("--allow-files" in told.err) == (statement in files)
    assert not (tmp_path / "new.csv").exists()


def test_no_name_of_a_cte_opens_a_view_of_duckdb():
    """`check_lake_only` takes a CTE's name wherever it stands in a statement; so none is DuckDB's own."""
    own = connect().execute(
        "SELECT view_name FROM duckdb_views() WHERE internal AND schema_name <> 'information_schema'"
    )
    names = {name for (name,) in own.fetchall()}
    assert names and all(name.startswith(SYSTEM) for name in names)


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT nope\nFROM images", 'Referenced column "nope" not found'),
        ("SELECT FROM WHERE", 'at or near "WHERE" LINE 1: SELECT FROM WHERE'),
        ("SELECT json_extract('{', '$')", "Malformed JSON"),
        ("SELECT error('a\nb')", "a b"),
    ],
)
def test_what_is_wrong_with_a_statement_is_told_in_one_line(capsys, lake: str, sql: str, said: str):
    assert main(["sql", sql, "--lake", lake]) == 1
    told = capsys.readouterr().err
    assert said in told and told.count("\n") == 1 and "damaged" not in told and "^" not in told


@pytest.mark.parametrize(
    "sql",
    [
        "DESCRIBE images",
        "SHOW TABLES",
        "SUMMARIZE images",
        "EXPLAIN SELECT 1",
        "explain analyze SELECT count(*) FROM images",
        "FROM images LIMIT 1",
        "SELECT count(*) FROM read_parquet('{lake}/data/main/**/*.parquet', union_by_name => true)",
        "FROM ducklake_snapshots('lake')",
        "SELECT i.image_id FROM lake.main.images AS i JOIN main.pairs USING (image_id)",
        "WITH a AS (FROM images), b AS (FROM a) SELECT (SELECT count(*) FROM b) FROM A",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r",
        "SELECT comment FROM duckdb_columns() WHERE database_name = 'lake' AND table_name = 'pairs'",
        "FROM lease",
        "FROM images PIVOT (count(*) FOR format IN ('png'))",
    ],
)
def test_sql_answers_whatever_only_reads_the_lake(capsys, lake: str, sql: str):
    assert asked(capsys, "sql", sql.format(lake=lake), "--lake", lake)


def test_sql_that_is_allowed_files_writes_an_export_and_leaves_the_lakes_tables(capsys, lake: str, tmp_path: Path):
    to = tmp_path / "pairs.csv"
    asked(capsys, "sql", f"COPY (SELECT image_id FROM images) TO '{to}'", "--allow-files", "--lake", lake)
    assert len(to.read_text().splitlines()) == N + 1
    assert main(["sql", "DELETE FROM images", "--allow-files", "--lake", lake]) == 1
    assert first(lake, "SELECT count(*) FROM images") == N


LONG = "SELECT range, 'a sentence of some length' FROM range(100000)"


@pytest.mark.parametrize("command", [["sql", LONG, "--format", "csv"], ["sql", LONG], ["why", "nothing"]])
def test_a_reading_command_whose_reader_has_gone_ends_quietly(lake: str, command: list[str]):
    """As `pairmill sql … | head -1`: whether it writes much or little, by print or by a table."""
    done = run_unread([*command, "--lake", lake])
    assert done.stderr == "" or done.stderr.startswith("pairmill: ")
    assert done.returncode == (1 if "why" in command else 0)


@pytest.mark.slow
def test_an_export_whose_reader_has_gone_is_written_whole(lake: str, tmp_path: Path):
    done = run_unread(["export", "small", "--to", str(tmp_path / "out"), "--lake", lake])
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out" / ".manifest.json").is_file()
