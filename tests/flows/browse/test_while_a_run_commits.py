"""Pages are answered while a real run commits, and in the end show what it made."""

import threading
from pathlib import Path

import pytest

from tests.worlds.browsed import browsed, ids, rows, text
from tests.worlds.generated import pages as documents
from tests.worlds.generated import small_settings
from tests.worlds.line import curate
from tests.worlds.shared import new_lake


@pytest.mark.slow  # a whole run, 25 s: no smaller one holds the lease and commits of every stage
def test_pages_are_answered_while_a_run_commits(tmp_path: Path):
    lake, faults = new_lake(tmp_path / "lake"), []

    def run() -> None:
        try:
            curate(lake, documents(), settings=small_settings(), commit_files=1)
        except BaseException as error:
            faults.append(error)
            raise

    with browsed(lake) as pages:
        running = threading.Thread(target=run)
        running.start()
        seen = [0]
        while running.is_alive():
            page = pages.gallery("/gallery")
            shown = page.find_class("count")
            seen.append(int(text(shown[0].find("b")).replace(",", "")) if shown else 0)
            for image in ids(page)[:1]:
                assert "Its document" in text(pages.page(f"/item/{image}"))
        running.join()
        assert not faults
        assert seen == sorted(seen) and len(set(seen)) > 1
        kept = [row[0] for row in rows(lake, "SELECT image_id FROM pairs ORDER BY 1")]
        assert ids(pages.gallery("/gallery?dataset=demo@1&fate=kept")) == kept[:60] and kept
