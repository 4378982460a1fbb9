"""The documentation site: every link leads somewhere, nothing is loaded from elsewhere, the reference is complete."""

import re
from pathlib import Path

import pytest
import yaml

from infra.site import build
from infra.site.commands_page import commands_page
from infra.site.diagram import as_svg
from infra.site.lake_pages import lake_tables, reasons_page, tables_page
from infra.site.messages_page import messages_of, messages_page
from infra.site.pages import ROOT, source_pages
from infra.site.recipe_page import recipe_page
from pairmill.catalog.lake import table_meanings
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.reasons import REASONS
from pairmill.flows.command.commands import commands_by_group

SETTINGS = (ROOT / "infra/docs/mkdocs.yml").read_text(encoding="utf-8")


def navigation() -> list[str]:
    """The pages of the navigation."""
    return re.findall(r":\s([\w-]+\.md)$", SETTINGS, re.MULTILINE)


@pytest.mark.slow
def test_the_site_builds_with_strict_links_and_loads_nothing_from_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["build", "--out", str(tmp_path / "docs")])
    assert build.main() == 0
    pages = list((tmp_path / "docs/site").rglob("*.html"))
    assert len(pages) > 40
    for page in pages:
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(
            r"<(?:script|img|iframe)[^>]* src=\"(https?:[^\"]*)|<link[^>]* href=\"(https?:[^\"]*)", text
        )
        assert not loaded, page
        assert "mermaid" not in text, page
    api = (tmp_path / "docs/site/python/index.html").read_text(encoding="utf-8")
    assert all(f'id="pairmill.flows.api.opened_lake.OpenLake.{name}"' in api for name in ("recut", "export", "sql"))
    llms = (tmp_path / "docs/site/llms.txt").read_text(encoding="utf-8")
    assert all(f"]({name.removesuffix('.md')}/)" in llms for name in navigation())


@pytest.mark.slow
def test_a_link_that_leads_nowhere_fails_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(build, "source_pages", lambda: {tmp_path / "index.md": "index.md"})
    monkeypatch.setattr(build, "MADE", {})
    monkeypatch.setattr(build, "llms", lambda *_: ("", ""))
    monkeypatch.setattr("sys.argv", ["build", "--out", str(tmp_path / "docs")])
    for text, status in (("# A\n[b](b.md)\n", 1), ("# A\n[b](#b)\n", 1), ("# A\n[a](#a)\n", 0)):
        (tmp_path / "index.md").write_text(text)
        assert bool(build.main()) == bool(status), text


def test_every_page_is_in_the_navigation_once():
    assert sorted(navigation()) == sorted([*source_pages().values(), *build.MADE])


def test_the_reference_names_every_command_setting_table_and_reason():
    commands, recipe, tables, reasons = commands_page(), recipe_page(), tables_page(), reasons_page()
    assert all(f"### {each.name}\n" in commands for group in commands_by_group().values() for each in group)
    assert "pairmill recipe show 30m" in commands and "`--dry-run`" in commands
    assert [name for name in Recipe.model_fields if f"| `{name}` |" not in recipe] == []
    assert "| `phash` | whole number ≥ 0, ≤ 16 | `4` |" in recipe
    assert {name for name in lake_tables() if f"## {name}\n" in tables} == {*table_meanings.tables()}
    assert [name for name in REASONS if f"| `{name}` |" not in reasons] == []


def test_no_meaning_is_of_a_column_that_does_not_exist():
    tables = lake_tables()
    exist = {f"{table}.{column}" for table, columns in tables.items() for column in columns}
    assert {*table_meanings.columns()} <= exist | {column.split(".")[1] for column in exist}


def test_messages_are_shown_without_what_is_computed():
    source = "def f(x):\n    raise PairmillError(f\"there is no lake at '{x}'. Check --lake, \" 'or make one.')\n"
    assert list(messages_of(source)) == ["there is no lake at '…'. Check --lake, or make one."]
    assert "there is no lake at '…'" in messages_page()


def test_the_questions_of_a_newcomer_have_answers():
    table = (ROOT / "infra/docs/index.md").read_text(encoding="utf-8").split("## Questions")[1]
    rows = [line for line in table.splitlines() if line.startswith("|") and "?" in line]
    assert len(rows) >= 20 and all("](" in row for row in rows)


def test_a_flowchart_is_drawn_with_its_boxes_and_labels():
    drawn = as_svg("flowchart LR\n  A[pages] -->|ingest| B[(lake)]\n  B --> C{cut}\n  C -->|wave| B\n")
    assert drawn.count("<rect") == 3 and drawn.count('class="line"') == 3
    assert all(f">{text}</text>" in drawn for text in ("pages", "lake", "cut", "ingest", "wave"))


def test_project_files_are_valid():
    for file in [*(ROOT / ".github").rglob("*.yml"), ROOT / "CITATION.cff"]:
        assert isinstance(yaml.safe_load(file.read_text(encoding="utf-8")), dict), file
    assert ".ci/run" in (ROOT / ".github/workflows/check.yml").read_text()
