"""Names of files and texts of pages are strangers': they act on no terminal; and secrets are not stored."""

import csv
import io
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.pending import contents, fetches
from pairmill.catalog.recipe.parts import Ingest
from pairmill.catalog.recipe.recipe import load
from pairmill.catalog.write import lease, runs
from pairmill.flows.command.cli import main
from pairmill.flows.run.run_start import resolve_sources
from pairmill.flows.run.settings import RECIPES
from pairmill.ops.ban_list import BanList
from pairmill.ops.fetch.fetcher import Fetcher
from pairmill.ops.read.places.tree import LocalTree
from pairmill.ops.read.source import SourceError, open_source
from pairmill.ops.text.split import SentenceSplitter
from pairmill.tasks.collect.fetch import FetchPictures
from pairmill.tasks.collect.ingest import IngestSettings, IngestUnits, reader_names, shard_item
from pairmill.tasks.run.items.partition import Output, write_parts
from tests.worlds.packed import sample, tar
from tests.worlds.samples import jpeg, write
from tests.worlds.shared import opened_new

READERS = reader_names(Ingest())

ESC, CSI, OVERRIDE = "\x1b]52;c;aGk=\x07", "\x9b31m", "\u202e"
ACTS = re.compile(r"[\0-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
BAD = f"fox{ESC}{CSI}[/red] :smile: sleeps here today."
NAME = f"a{ESC}{CSI}{OVERRIDE}[/red]\n  decision  kept.jpg"
HIDDEN = "hunter2"
USER = f"https://me:{HIDDEN}@host.invalid"


def hostile(folder: Path) -> Path:
    """Every format with a control code in each place that is text, and a user with a password in each address."""
    page = (
        "<html><head><title>T&#27;]52;c;x&#7;</title><meta name=description content='d&#27;[31m'></head><body><article>"
        f"<p>A &#27;]52;c;aGk=&#7; page &#155;31m: a fox sleeps.</p><img src='p.jpg' alt='alt &#27;[31m &#155;1m'>"
        f"<img src='{USER}/x&#27;.jpg' alt='far'></article></body></html>"
    )
    rows = [{"url": f"{USER}/{n}.jpg", "caption": BAD, "note": BAD, "more": {"deep": [BAD]}} for n in range(2)]
    table = pa.table({"raw_image_url": [f"{USER}/r.jpg"], "text1": [BAD], "text2": [BAD], "text3": [BAD]})
    parquet = io.BytesIO()
    pq.write_table(table, parquet)
    cells = io.StringIO()
    csv.writer(cells).writerows([["url", "caption", "site"], [f"{USER}/c.jpg", BAD, f"{USER}/"], ["", BAD, ""]])
    mmc4 = {"text_list": [BAD], "image_info": [{"raw_url": f"{USER}/m.jpg", "matched_text_index": 0}]}
    return write(
        folder,
        {
            "page.html": page, "p.jpg": jpeg(), NAME: jpeg(size=(9, 9)), f"{NAME[:-4]}.txt": BAD,
            f"bad{ESC}[/red].png": b"no picture", f"odd{ESC}[/red].xyz": b"?",
            "rows.jsonl": "\n".join(map(json.dumps, rows)), "cells.csv": cells.getvalue(),
            "real.parquet": parquet.getvalue(), "mmc4.jsonl": json.dumps(mmc4),
            "made.tar": tar(sample(f"0{ESC}[/red]", jpeg(size=(8, 7)), BAD)),
        },
    )  # fmt: skip


def ingest(lake: Lake, source: str) -> None:
    read = open_source(source)
    job = IngestUnits(read, IngestSettings(10**6, 10**6, SentenceSplitter(), "copy", BanList(), READERS))
    with lease.writing(lake, "run", "test") as writer:
        item = shard_item(list(read.listed()), "shard")
        writer.commit(write_parts(job(item), item, Output(lake.data_path, "run", writer.begin("ingest"))))
        contents.index(lake, lambda: writer.begin("index contents"))
        for item in fetches.pending_fetches(lake):
            fetched = FetchPictures(Fetcher(seconds=1.0, retries=0), 10**6, BanList())(item)
            output = Output(lake.data_path, "run", writer.begin("fetch"))
            writer.commit(write_parts(fetched, item, output))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("strangers")
    with opened_new(folder / "lake") as lake:
        ingest(lake, str(hostile(folder / "source")))
    return folder / "lake"


def held(lake: Path) -> dict[str, str]:
    """All rows of all tables, as text; paths stand as they are, since files are found by them."""
    with create_or_open(lake, read_only=True) as opened:
        tables = [
            name for (name,) in opened.query("SELECT table_name FROM duckdb_tables() WHERE database_name = 'lake'")
        ]
        return {name: "\n".join(map(str, opened.query(f'SELECT * FROM "{name}"'))) for name in tables}


def test_no_text_of_any_format_comes_into_a_table_with_a_control_code(lake: Path):
    texts = {
        "documents": ("title", "metadata"), "images": ("alt_text",), "links": ("url", "alt_text"),
        "sentences": ("text",), "quarantine": ("detail",), "fetches": ("url", "detail", "final_url"),
    }  # fmt: skip
    with create_or_open(lake, read_only=True) as opened:
        for table, names in texts.items():
            rows = opened.query(f"SELECT {', '.join(names)} FROM {table}")
            assert rows
            found = [
                value for row in rows for value in row if value and re.search(r"[\0-\x08\x0b-\x1f\x7f-\x9f]", value)
            ]
            assert found == []
            assert not [v for row in rows for v in row if v and re.search(r"(?<!\\)\\u00[01]", v)], table
        assert opened.query("SELECT count(*) FROM sentences WHERE text LIKE '%fox%'") > [(6,)]


def test_user_and_password_of_a_pictures_address_are_in_no_table(lake: Path):
    found = held(lake)
    assert (
        "host.invalid" in found["links"] and "host.invalid" in found["fetches"] and "host.invalid" in found["documents"]
    )
    assert [name for name, rows in found.items() if HIDDEN in rows] == []
    files = [path for path in lake.rglob("*") if path.is_file()]
    assert len(files) > 10 and not [path for path in files if HIDDEN.encode() in path.read_bytes()]


COMMANDS = [
    ("quarantine",),
    ("status",),
    ("datasets",),
    ("sql", "SELECT * FROM documents"),
    ("sql", "SELECT url, alt_text FROM images", "--format", "json"),
    ("sql", "SELECT item, detail FROM quarantine"),
    ("sql", "SELECT chr(27) || '[31m' AS \"a[/red]b\""),
]


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_hands_a_name_or_a_text_to_the_terminal_as_it_is(capsys, lake: Path, command: tuple[str, ...]):
    assert main([*command, "--lake", str(lake)]) == 0
    out = capsys.readouterr().out
    assert not ACTS.search(out)


@pytest.mark.slow
def test_why_of_a_name_with_markup_and_line_ends_keeps_to_its_lines(capsys, lake: Path):
    with create_or_open(lake, read_only=True) as opened:
        ids = [row[0] for row in opened.query("SELECT image_id FROM images UNION SELECT document_id FROM documents")]
        urls = [row[0] for row in opened.query("SELECT url FROM images UNION SELECT url FROM links")]
        items = [row[0] for row in opened.query("SELECT item FROM quarantine")]
    said = ""
    for each in (*ids, *urls, *items):
        assert main(["why", each, "--lake", str(lake)]) == 0, each
        out = capsys.readouterr().out
        assert not ACTS.search(out)
        assert "\n  decision  kept" not in out
        said += out
    assert r"\u001b]52;c;aGk=\u0007\u009b31m\u202e[/red]\u000a  decision" in said
    assert main(["why", f"no{ESC}such", "--lake", str(lake)]) == 1
    assert not ACTS.search(capsys.readouterr().err)


def test_csv_in_a_file_is_the_data_and_for_a_spreadsheet_no_text_is_a_formula(capsys, lake: Path):
    sql = "SELECT '=1+1' AS a, '+x' AS b, '-x' AS c, '@x' AS d, -1 AS n, chr(27) AS e, chr(9) || '=' AS t"
    assert main(["sql", sql, "--format", "csv", "--lake", str(lake)]) == 0
    assert capsys.readouterr().out == "a,b,c,d,n,e,t\n=1+1,+x,-x,@x,-1,\x1b,\t=\n"
    assert main(["sql", sql, "--format", "spreadsheet", "--lake", str(lake)]) == 0
    assert capsys.readouterr().out == "a,b,c,d,n,e,t\n'=1+1,'+x,'-x,'@x,-1,\x1b,'\t=\n"


SIGNED = f"https://host.invalid/list.parquet?X-Amz-Signature={HIDDEN}"


def test_a_signed_address_of_a_recipe_stands_in_no_row(tmp_path: Path):
    recipe = load("demo", {"sources": json.dumps([SIGNED, f"url_list:{SIGNED}"])}, RECIPES)
    shown = [open_source(uri).uri for uri in recipe.sources]
    with opened_new(tmp_path / "lake") as lake, runs.record_run(lake, "run", "curate", recipe, shown):
        pass
    found = held(tmp_path / "lake")
    assert "list.parquet" in found["run_recipes"] and HIDDEN not in str(found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "uri", [f"nosuch:{SIGNED}", f"ftp://me:{HIDDEN}@host.invalid/x", SIGNED.replace(".parquet", ".x"), SIGNED + " x"]
)
def test_no_message_repeats_what_may_be_a_secret(uri: str):
    with pytest.raises(SourceError) as raised:
        resolve_sources(load("demo", {}, RECIPES), [uri])
    assert HIDDEN not in str(raised.value)


def test_a_source_may_be_named_by_a_variable_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LIST", SIGNED)
    assert (
        open_source("${LIST}").uri == open_source("url_list:${LIST}").uri.partition(":")[2] == SIGNED.partition("?")[0]
    )
    monkeypatch.setenv("LIST", str(tmp_path))
    assert isinstance(open_source("${LIST}").tree, LocalTree)
    monkeypatch.delenv("LIST")
    with pytest.raises(SourceError, match="LIST; export it"):
        open_source("${LIST}")


def test_why_finds_an_address_by_what_its_page_says(capsys, lake: Path):
    assert main(["why", f"{USER}/0.jpg", "--lake", str(lake)]) == 0
    assert "https://host.invalid/0.jpg" in capsys.readouterr().out
