"""The browser serves a version's report under the report's own policy, and no other file."""

from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find
from pairmill.flows.run.outcome import ensure_report
from tests.worlds.browsed import browsed, text
from tests.worlds.published import published


@pytest.mark.slow
def test_a_report_is_served_whole_or_not_at_all(tmp_path: Path):
    lake = tmp_path / "lake"
    published(lake, pictures=3)
    with browsed(lake) as pages:
        assert "pairmill report small@1 --lake" in text(pages.page("/report?dataset=small@1", 400))
        with create_or_open(lake, read_only=True) as opened:
            file = Path(ensure_report(opened, find(opened, "small@1")))
        answer = pages.client.get("/report", params={"dataset": "small@1"})
        assert answer.content == file.read_bytes() and answer.headers["content-type"].startswith("text/html")
        (policy,) = answer.headers.get_list("content-security-policy")
        assert "script-src" not in policy and "default-src 'none'" in policy and "connect-src" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        file.write_bytes(file.read_bytes().replace(b"small", b"<script>alert(1)</script>", 1))
        pages.page("/report?dataset=small@1", 400)
        for other in ("../../etc/passwd", "small@7", "", "small-1.html"):
            assert pages.client.get("/report", params={"dataset": other}).status_code == 400
