"""Record runs: which flow and recipe, when, and how each ended."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError, stop_behind
from pairmill.catalog.terms.secrets import without_users

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe  # pydantic, which a list of runs needs not


@dataclass(frozen=True)
class Run:
    """One row of ``runs``; ``recipe`` is its name.

    ``state`` is 'running', 'completed', 'failed', 'interrupted' (Ctrl-C, SIGTERM),
    'cancelled' (by Prefect) or 'killed'.
    """

    run_id: str
    flow: str
    recipe: str
    state: str
    started_at: datetime
    finished_at: datetime | None
    detail: str


@contextmanager
def recorded(lake: Lake, run_id: str, flow: str, recipe: "Recipe", sources: Sequence[str]) -> Iterator[None]:
    """Insert a row into ``runs`` and close it when the body ends. The caller holds the lease.

    Runs that still stand as running held it before, and were killed before they could say so: they become 'killed'.
    """
    row = (run_id, flow, recipe.name, "running", datetime.now(UTC), None, "")
    recorded = (run_id, json.dumps(recipe.record(), ensure_ascii=False), list(sources))

    def begin() -> None:
        if lake.query("SELECT 1 FROM runs WHERE state = 'running'"):
            why = f"found by run {run_id}: it is gone"
            lake.execute("UPDATE runs SET state = 'killed', detail = ? WHERE state = 'running'", (why,))
        lake.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        lake.execute("INSERT INTO run_recipes VALUES (?, ?, ?)", recorded)

    lake.retrying(begin)
    try:
        yield
    except BaseException as error:
        why = stop_behind(error)
        _end(lake, run_id, _state(why), without_users(f"{type(why).__name__}: {why}".removesuffix(": "))[:2000])
        raise
    _end(lake, run_id, "completed", "")


def _state(error: BaseException) -> str:
    """Return how a run ended; Prefect's signals, which this floor does not know, are no ``Exception`` either."""
    if isinstance(error, Exception | SystemExit):
        return "failed"
    return "interrupted" if isinstance(error, KeyboardInterrupt) else "cancelled"


def latest(lake: Lake, n: int) -> list[Run]:
    """Return the last ``n`` runs, newest first."""
    columns = "run_id, flow, recipe, state, started_at, finished_at, detail"
    sql = f"SELECT {columns} FROM runs ORDER BY started_at DESC LIMIT {n}"
    return [Run(*row) for row in lake.query(sql)]


def latest_recipe(lake: Lake) -> "Recipe":
    """Return the recipe of the newest run, with its settings and models. Raises PairmillError when there is no run."""
    from pairmill.catalog.recipe.recipe import validated

    rows = lake.query("SELECT p.recipe FROM run_recipes p JOIN runs USING (run_id) ORDER BY started_at DESC LIMIT 1")
    if not rows:
        raise PairmillError(f"no run of lake '{lake.uri}' has its recipe on record; name a recipe.")
    return validated(json.loads(rows[0][0]), "of the newest run")


def _end(lake: Lake, run_id: str, state: str, detail: str) -> None:
    lake.execute(
        "UPDATE runs SET state = ?, finished_at = ?, detail = ? WHERE run_id = ?",
        (state, datetime.now(UTC), detail, run_id),
    )
