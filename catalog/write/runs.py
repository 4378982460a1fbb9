"""Record runs in table ``runs`` (flow, recipe, times, and how each ended), finished exports, and proofs of versions."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import BudgetSpent, NotApproved, PairmillError, stop_behind
from pairmill.catalog.terms.secrets import hide_secrets

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe  # imports pydantic, which a list of runs does not need

# SQL: a text as the line before the notes of a run's row.
_BEFORE_NOTES = "concat_ws(chr(10), nullif(?, ''), nullif(detail, ''))"
_NOTE = "note: "
_RUNS = "SELECT run_id, flow, recipe, state, started_at, finished_at, detail FROM runs"


@dataclass(frozen=True)
class Run:
    """One row of ``runs``; ``recipe`` is the recipe's name.

    ``state`` is 'running', 'completed', 'failed', 'cancelled' (Ctrl-C, SIGTERM, by Prefect), 'stopped' (at a limit of
    time, rows or money) or 'killed'. ``detail`` says why a run ended early; its lines 'note: …' are of its workers.
    """

    run_id: str
    flow: str
    recipe: str
    state: str
    started_at: datetime
    finished_at: datetime | None
    detail: str

    @property
    def error(self) -> str:
        """The first line of the reason why the run ended early; '' if it runs or is completed."""
        return next((line for line in self.detail.splitlines() if not line.startswith(_NOTE)), "")

    @property
    def notes(self) -> list[str]:
        """The notes of the run's workers."""
        return [line.removeprefix(_NOTE) for line in self.detail.splitlines() if line.startswith(_NOTE)]


def last_recipe(lake: Lake, name: str) -> str:
    """Return ``name`` if a run has curated by a recipe of this name, or none has, else the recipe that ran last."""
    sql = "SELECT recipe FROM runs WHERE flow = 'curate' ORDER BY recipe = ? DESC, started_at DESC"
    found = lake.query(sql, (name,))
    return found[0][0] if found else name


@contextmanager
def record_run(lake: Lake, run_id: str, flow: str, recipe: "Recipe", sources: Sequence[str]) -> Iterator[None]:
    """Insert a row into ``runs`` for the `with` block, and record its end and outcome. The caller holds the lease.

    Other runs recorded as running are set to 'killed': they held the lease before and ended without recording it.
    """
    row = (run_id, flow, recipe.name, "running", datetime.now(UTC), None, "")
    recorded = (run_id, json.dumps(recipe.record(), ensure_ascii=False), list(sources))

    def begin() -> None:
        if lake.query("SELECT 1 FROM runs WHERE state = 'running'"):
            why = f"found by run {run_id}: it is gone"
            lake.execute(f"UPDATE runs SET state = 'killed', detail = {_BEFORE_NOTES} WHERE state = 'running'", (why,))
        lake.execute("INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        lake.execute("INSERT INTO run_recipes VALUES (?, ?, ?)", recorded)

    lake.retrying(begin)
    try:
        yield
    except BaseException as error:
        why = stop_behind(error)
        _end(lake, run_id, _state(why), hide_secrets(f"{type(why).__name__}: {why}".removesuffix(": "))[:2000])
        raise
    _end(lake, run_id, "completed", "")


def _state(error: BaseException) -> str:
    """Return the state of a run that ``error`` ended, maybe no ``Exception``: Prefect's signals, KeyboardInterrupt."""
    if isinstance(error, BudgetSpent):
        return "stopped"
    if isinstance(error, NotApproved):
        return "cancelled"
    return "failed" if isinstance(error, Exception | SystemExit) else "cancelled"


def add_note(lake: Lake, run_id: str, text: str) -> None:
    """Append a note to a running run's row. The caller holds the lease."""
    line = _NOTE + " ".join(text.split())[:1000]
    sql = "UPDATE runs SET detail = concat_ws(chr(10), nullif(detail, ''), ?) WHERE run_id = ?"
    lake.retrying(lambda: lake.execute(sql, (line, run_id)))


def runs_with_notes(lake: Lake, until: datetime) -> list[Run]:
    """Return the runs that have notes and began before ``until``, oldest first."""
    sql = f"{_RUNS} WHERE detail LIKE '%{_NOTE}%' AND started_at <= ? ORDER BY started_at"
    return [run for run in (Run(*row) for row in lake.query(sql, (until,))) if run.notes]


def latest(lake: Lake, n: int) -> list[Run]:
    """Return the last ``n`` runs, newest first."""
    return [Run(*row) for row in lake.query(f"{_RUNS} ORDER BY started_at DESC LIMIT {n}")]


def latest_recipe(lake: Lake) -> "Recipe":
    """Return the recipe of the newest run, with its models. Raise PairmillError if none is on record."""
    from pairmill.catalog.recipe.recipe import validate

    rows = lake.query("SELECT p.recipe FROM run_recipes p JOIN runs USING (run_id) ORDER BY started_at DESC LIMIT 1")
    if not rows:
        raise PairmillError(f"no run of lake '{lake.uri}' has its recipe on record; name a recipe.")
    return validate(json.loads(rows[0][0]), "of the newest run")


def recipe_of(lake: Lake, run_id: str) -> "Recipe | None":
    """Return the recipe of a run, with its models; None if it is not on record."""
    from pairmill.catalog.recipe.recipe import validate

    rows = lake.query("SELECT recipe FROM run_recipes WHERE run_id = ?", (run_id,))
    return validate(json.loads(rows[0][0]), f"of run {run_id}") if rows else None


def _end(lake: Lake, run_id: str, state: str, detail: str) -> None:
    """Set the final state of a run; ``detail``, if any, becomes the line before its notes."""
    lake.execute(
        f"UPDATE runs SET detail = {_BEFORE_NOTES}, state = ?, finished_at = ? WHERE run_id = ?",
        (detail, state, datetime.now(UTC), run_id),
    )


def last_commit(lake: Lake, run_id: str = "") -> int:
    """Return the newest commit number of a run, or of the lake if ``run_id`` is ''; 0 before the first commit."""
    where, values = (" WHERE run_id = ?", (run_id,)) if run_id else ("", ())
    return lake.query(f'SELECT coalesce(max("commit"), 0) FROM commits{where}', values)[0][0]


def partitions_since(lake: Lake, run_id: str, commit: int) -> list[tuple[str, str, int]]:
    """Return (table, shard, rows) of each partition that a run committed after ``commit``."""
    sql = 'SELECT "table", shard, rows FROM partitions WHERE run_id = ? AND "commit" > ?'
    return lake.query(sql, (run_id, commit))


def record_wave(lake: Lake, run_id: str, wave: int, counts: Sequence[int], commit: int) -> None:
    """Insert a row into ``waves``; ``counts`` are the images requested, passed and kept. A retried step replaces it."""

    def body() -> None:
        lake.execute("DELETE FROM waves WHERE run_id = ? AND wave = ?", (run_id, wave))
        lake.execute("INSERT INTO waves VALUES (?, ?, ?, ?, ?, ?)", (run_id, wave, *counts, commit))

    lake.retrying(body)


def first_answers(lake: Lake, model: str) -> tuple[str, ...]:
    """Return the answers to the first probe of the model with digest ``model``; () if it was never probed."""
    found = lake.query('SELECT answers FROM probes WHERE model = ? ORDER BY "at" LIMIT 1', (model,))
    return tuple(found[0][0]) if found else ()


def record_probe(
    lake: Lake, run_id: str, model: str, endpoint: str, server: str, answers: tuple[str, ...], agreement: float
) -> None:
    """Store an endpoint's answers to a probe, the share (0 to 1) equal to the first answers, and its software."""
    lake.retrying(
        lambda: lake.execute(
            "INSERT INTO probes VALUES (?, ?, ?, ?, ?, ?, now())",
            (run_id, model, endpoint, server, list(answers), round(agreement, 4)),
        )
    )


def record_export(
    lake: Lake,
    check: Callable[[], None],
    rows: Mapping[tuple[str, int], int],
    format: str,
    uri: str,
    files: int,
    n_bytes: int,
) -> None:
    """Insert a row into ``exports`` for each version of an export; replace earlier rows of ``uri``.

    ``rows`` has the number of rows by (dataset, version); several are a mixture, whose files hold rows of all.

    ``check`` runs in the same transaction, which it aborts by raising. The caller holds the lease.
    """

    def body() -> None:
        check()
        lake.execute("DELETE FROM exports WHERE uri = ?", (uri,))
        for version, n in rows.items():
            row = (*version, format, uri, files, n, n_bytes, datetime.now(UTC))
            lake.execute("INSERT INTO exports VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    lake.retrying(body)


def record_proof(
    lake: Lake, dataset: tuple[str, int], head: tuple[str, int, int, int, datetime], lines: Iterable[Sequence[Any]]
) -> None:
    """Insert the lines of a proof. Requires the lease.

    ``head``: judge, seeds, pairs of the pool, kinds, time; a line is the fields of `ProofLine` in order.
    """
    rows = [[*dataset, *head, place, *line] for place, line in enumerate(lines)]

    sql = f"INSERT INTO proofs VALUES ({', '.join('?' * len(rows[0]))})"
    lake.retrying(lambda: [lake.execute(sql, row) for row in rows])
