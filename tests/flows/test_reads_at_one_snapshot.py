"""What a command says beside a run that commits between any two of its statements is true of one moment."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.figures import lake_status
from pairmill.catalog.write import lease
from tests.worlds.commands import Tell
from tests.worlds.published import published
from tests.worlds.shared import opened_new


def between_statements(monkeypatch: pytest.MonkeyPatch, change: Callable[[], object]) -> list[str]:
    """Have ``change`` called before each statement of a reader but its first; returns these statements."""
    check, asked = Lake.check_tables_of, []

    def checked(self: Lake, sql: str) -> None:
        check(self, sql)
        if self.read_only:
            asked.append(sql)
            if len(asked) > 1:
                change()

    monkeypatch.setattr(Lake, "check_tables_of", checked)
    return asked


def test_status_counts_at_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell):
    with opened_new(tmp_path / "lake") as writer:

        def change() -> None:
            def body() -> None:
                writer.execute("INSERT INTO documents (document_id) VALUES ('a')")
                writer.execute("INSERT INTO quarantine (item) VALUES ('a')")

            writer.retrying(body)

        asked = between_statements(monkeypatch, change)
        told = tell("status", "--lake", str(tmp_path / "lake"))
    n_documents, n_quarantined = (re.search(rf"(\d+) {name}", told)[1] for name in ("documents", "quarantine"))  # type: ignore[index]
    assert n_documents == n_quarantined and len(asked) > 4


@pytest.mark.slow
def test_why_tells_of_one_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell):
    lake = tmp_path / "lake"
    published(lake)
    before = tell("why", "5.jpg", "--lake", str(lake))
    with create_or_open(lake) as writer:
        tables = ("images", "decisions", "pairs", "captions", "image_quality", "match_candidates", "scorers", "funnel")

        def change() -> None:
            if "FROM images" in asked[-1] and not deleted:
                deleted.append(True)
                for table in tables:
                    writer.execute(f"DELETE FROM {table}")

        deleted: list[bool] = []
        asked = between_statements(monkeypatch, change)
        assert tell("why", "5.jpg", "--lake", str(lake)) == before
        assert writer.query("SELECT count(*) FROM pairs") == [(0,)]


def test_a_run_that_begins_while_status_reads_is_not_said_to_be_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tell: Tell
):
    with opened_new(tmp_path / "lake") as writer:
        ended, begun = lake_status.holder_of, []

        def begin(metadata: object) -> object:
            found = ended(metadata)  # pyright: ignore
            if not begun:
                begun.append(lease.writing(writer, "run", "curate demo"))
                begun[0].__enter__()
                writer.execute("INSERT INTO runs VALUES ('run', 'curate', 'demo', 'running', now(), NULL, '')")
            return found

        monkeypatch.setattr(lake_status, "holder_of", begin)
        told = tell("status", "--lake", str(tmp_path / "lake"))
        begun[0].__exit__(None, None, None)
    (line,) = [line for line in told.splitlines() if line.startswith("run ")]
    assert line.endswith(", running")
