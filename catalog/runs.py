"""The record of runs: who ran what, when, and how it ended."""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from catalog.lake import Lake


@contextmanager
def recorded(lake: Lake, run_id: str, flow: str, recipe: str) -> Iterator[None]:
    """A row in ``runs`` for the time of the body; a run that was killed stays 'running' without an end."""
    started = datetime.now(UTC)
    row = (run_id, flow, recipe, "running", started, None, "")
    lake.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row)
    try:
        yield
    except BaseException as error:
        _end(lake, run_id, "failed", f"{type(error).__name__}: {error}"[:2000])
        raise
    _end(lake, run_id, "completed", "")


def _end(lake: Lake, run_id: str, state: str, detail: str) -> None:
    lake.execute(
        "UPDATE runs SET state = ?, finished_at = ?, detail = ? WHERE run_id = ?",
        (state, datetime.now(UTC), detail, run_id),
    )
