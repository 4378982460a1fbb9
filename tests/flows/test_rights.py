"""Licence and credit of pictures: from files, pages and tables, into rules, pairs, exports and their cards."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.licence import VERSION, choose_rights, spdx
from pairmill.tasks.release.export.export import export
from tests.ops.image.test_file_claims import BY_AI, exif, file
from tests.worlds.golden import check_golden
from tests.worlds.line import curate, rows
from tests.worlds.samples import table_bytes, write

PAGE = '<head>{head}</head><body><p>A red fox sleeps in the sun today.</p><img src="{src}" alt="a fox"></body>'
RECIPE = """
name: licensed
models: {}
association: none
duplicates: none
balance: {cap: none}
images:
  - {name: free,     keep: "licence in ('CC0-1.0', 'CC-BY-4.0', 'CC-BY-SA-4.0')"}
  - {name: no_ai,    keep: "ai_made = ''"}
  - {name: no_place, keep: "not has_gps"}
"""
BY = '<cc:license rdf:resource="http://creativecommons.org/licenses/by-sa/4.0/"/>'


@pytest.mark.parametrize(
    ("statement", "identifier"),
    [
        ("https://creativecommons.org/licenses/by/4.0/", "CC-BY-4.0"),
        ("//creativecommons.org/licenses/by-nc-sa/3.0/de/legalcode", "CC-BY-NC-SA-3.0-DE"),
        ("http://creativecommons.org/licenses/by/2.1/es/", ""),  # SPDX lists no such port
        ("https://creativecommons.org/publicdomain/zero/1.0/deed.fr", "CC0-1.0"),
        ("https://creativecommons.org/publicdomain/mark/1.0/", "CC-PDM-1.0"),
        ("Creative Commons Attribution-ShareAlike 4.0 International", "CC-BY-SA-4.0"),
        ("Licensed under CC BY-NC-ND 4.0.", "CC-BY-NC-ND-4.0"),
        ("cc-by-sa-3.0-de", "CC-BY-SA-3.0-DE"),
        ("CC0", "CC0-1.0"),
        ("Open Government Licence v3.0", "OGL-UK-3.0"),
        ("Apache License 2.0", "Apache-2.0"),
        ("CC BY", ""),
        ("public domain", ""),
        ("© CC Smith 2014. All rights reserved", ""),
        ("submit", ""),
    ],
)
def test_a_statement_means_an_spdx_identifier_or_none_for_certain(statement: str, identifier: str):
    assert spdx(statement) == identifier


def test_the_version_gives_what_it_gave():
    nothing = {"file_licence": "", "exif_rights": "", "file_creator": ""}
    by = {"licence": "CC BY 4.0", "licence_url": "https://example.org/terms", "attribution": None, "author": "Ada"}
    zero, silent = by | {"licence": "CC0", "licence_url": None, "attribution": "Bob"}, dict.fromkeys(by)
    own = nothing | {"file_licence": "http://creativecommons.org/licenses/by/3.0/", "file_creator": "Zoë"}
    notice = nothing | {"exif_rights": "© Zoë"}
    given = [(nothing, [by, silent]), (nothing, [by, zero]), (own, [by]), (notice, [silent]), (notice, [zero]),
             (nothing, [])]  # fmt: skip
    check_golden("rights", VERSION, [choose_rights(claims, documents) for claims, documents in given])


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six pages with a picture each, and a table of two."""
    folder = tmp_path_factory.mktemp("licensed")
    by = '<link rel="license" href="https://creativecommons.org/licenses/by/4.0/"><meta name="author" content="Ada">'
    shared, reserved = file(quality=91), '<meta name="copyright" content="x"><meta name="rights" content="All of them">'
    write(
        folder / "pages",
        {
            "by.html": PAGE.format(head=by, src="by.png"),
            "by.png": file("PNG"),
            "none.html": PAGE.format(head="", src="none.png"),
            "none.png": file("PNG", exif=exif(Copyright="(c) Bob")),
            "own.html": PAGE.format(head=by, src="own.jpg"),
            "own.jpg": file(xmp=f">{BY}<dc:creator><rdf:Seq><rdf:li>Zoë</rdf:li></rdf:Seq></dc:creator>"),
            "ai.html": PAGE.format(head=by, src="ai.jpg"),
            "ai.jpg": BY_AI[3][0],
            "first.html": PAGE.format(head=by, src="shared.jpg"),
            "second.html": PAGE.format(head=reserved, src="shared.jpg"),
            "shared.jpg": shared,
        },
    )
    columns = {"image": [file("WEBP"), file(quality=50)], "licence": ["CC0", "CC BY-NC 4.0"],
               "attribution": ["Museum\tof Foxes", "Bob"], "caption": ["a fox", "a cat"]}  # fmt: skip
    write(folder, {"table.parquet": table_bytes({name: pa.array(values) for name, values in columns.items()})})
    write(folder, {"licensed.yaml": RECIPE})
    curate(folder / "lake", folder / "pages", folder / "table.parquet", recipe=str(folder / "licensed.yaml"))
    return folder


@pytest.mark.slow
def test_rules_read_licences_of_files_pages_and_tables(world: Path):
    found = rows(
        world / "lake",
        "SELECT DISTINCT licence, attribution, dropped_by FROM rights JOIN images USING (sha256) "
        "JOIN decisions ON item_id = image_id ORDER BY ALL",
    )
    assert found == [
        ("(c) Bob", None, "free"),
        ("CC-BY-4.0", "Ada", ""),
        ("CC-BY-4.0", "Ada", "no_ai"),
        ("CC-BY-NC-4.0", "Bob", "free"),
        ("CC-BY-SA-4.0", "Zoë", ""),
        ("CC0-1.0", "Museum\tof Foxes", ""),
        ("conflicting", "Ada", "free"),
    ]


def test_an_export_has_licences_credits_and_a_card_that_names_them(world: Path, tmp_path: Path):
    with create_or_open(world / "lake") as lake:
        export(lake, "licensed", None, str(tmp_path / "out"), "parquet")
    pairs = pq.read_table(next((tmp_path / "out").glob("*.parquet"))).to_pylist()
    assert {row["licence"]: row["licence_url"] for row in pairs} == {
        "CC-BY-4.0": "https://creativecommons.org/licenses/by/4.0/",
        "CC-BY-SA-4.0": "http://creativecommons.org/licenses/by-sa/4.0/",
        "CC0-1.0": "https://spdx.org/licenses/CC0-1.0.html",
    }
    head, *credits = (tmp_path / "out" / "CREDITS.tsv").read_text().splitlines()
    assert head.split("\t") == ["image_id", "attribution", "licence", "licence_url", "raw_image_url"]
    assert {line.split("\t")[0] for line in credits} == {row["image_id"] for row in pairs}
    assert {line.split("\t")[1] for line in credits} == {"Ada", "Zoë", "Museum of Foxes"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "\n| licence | pairs | with credit |\n| --- | --- | --- |\n| CC-BY-4.0 | 1 | 1 |\n" in card
    assert "| 3 | 0 | 0 | 0 |" in card.partition("## What files say")[2].partition("##")[0]
    free = "| pictures | free | licence in ('CC0-1.0', 'CC-BY-4.0', 'CC-BY-SA-4.0') | 8 | 4 |"
    assert free in card and "## Contact" not in card and "## Opt-outs honoured" not in card
    told = json.loads((tmp_path / "out" / ".croissant.json").read_text())
    assert sorted(told["license"]) == ["CC-BY-4.0", "CC-BY-SA-4.0", "CC0-1.0"]


def test_a_card_alone_has_the_tables_in_croissant_too_and_where_to_ask_for_a_removal(world: Path, tmp_path: Path):
    with create_or_open(world / "lake") as lake:
        for _ in range(2):
            export(lake, "licensed", 1, str(tmp_path), "card", contact="ada@example.org")
        assert not any("card" in row for row in lake.query("SELECT format FROM exports"))
        with pytest.raises(PairmillError, match="--contact: give one mail or web address"):
            export(lake, "licensed", 1, str(tmp_path), "card", contact="ask\nme@example.org")
        with pytest.raises(PairmillError, match="as card with --contact ada@example\\.org"):
            export(lake, "licensed", 1, str(tmp_path), "card")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".croissant.json", ".pairmill", "README.md"]
    ask = "To have a picture or text removed, write to ada@example.org."
    assert (tmp_path / "README.md").read_text().endswith(f"## Contact\n\n{ask}\n")
    told = json.loads((tmp_path / ".croissant.json").read_text())
    assert told["rai:dataReleaseMaintenancePlan"] == ask and told["distribution"] == []
    assert "Licences: licence: CC-BY-4.0, pairs: 1, with credit: 1" in told["rai:dataCollection"]


@pytest.mark.slow
def test_a_run_again_does_nothing_until_a_document_says_something_else(world: Path):
    recipe = str(world / "licensed.yaml")
    _, counts = curate(world / "lake", world / "pages", recipe=recipe)
    assert not any(counts.values())
    by = '<link rel="license" href="https://creativecommons.org/licenses/by/4.0/">'
    write(world / "pages", {"second.html": PAGE.format(head=by, src="shared.jpg")})
    published, counts = curate(world / "lake", world / "pages", recipe=recipe)
    assert counts["credit pictures"] == 1 and published.version == 2
    found = rows(world / "lake", "SELECT licence FROM pairs WHERE version = 2 ORDER BY ALL")
    assert found == [("CC-BY-4.0",), ("CC-BY-4.0",), ("CC-BY-SA-4.0",), ("CC0-1.0",)]
