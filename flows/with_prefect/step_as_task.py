"""Run a step as a Prefect task, which Prefect shows and retries; log its results, and show the growing funnel."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from prefect import Task, get_run_logger
from prefect.cache_policies import NO_CACHE
from prefect.states import Failed

from pairmill.catalog.cut.publication import image_funnel
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.generated import without_unset_thresholds
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.write.runs import last_commit, partitions_since
from pairmill.flows.run.progress_text import duration
from pairmill.flows.user_error import user_message
from pairmill.flows.with_prefect.artifacts import create_funnel, unless_refused
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.run.session import Session

# Tables to which a step that reads sources adds rows. The rows of other steps are counted in their own unit.
CONTENT = ("documents", "images", "sentences", "links")
FAILED = "quarantine"


def as_task(step: Callable[[Session], Any], session: Session) -> Any:
    """Run ``step`` as a Prefect task of its name, and return its result; retry twice unless the user must fix an error.

    The session is captured in a closure, because Prefect would inspect an argument, with the lake inside it. Prefect
    caches and stores no result: the catalog records all completed work, and a retry continues from there. An error that
    the user must fix is the task's message, since Prefect logs the traceback of one that is raised.
    """
    refused: list[Exception] = []

    def work() -> Any:
        run_id = session.writer.run_id
        before, commit, began = dict(session.rows), last_commit(session.lake, run_id), time.monotonic()
        try:
            with forward_worker_log(get_run_logger()):
                result = step(session)
        except Exception as error:
            if (line := user_message(error)) is None:
                raise
            refused.append(error)
            return Failed(message=line)
        worked = {key: n - before.get(key, 0) for key, n in session.rows.items()}
        added, is_idle = added_since(session.lake, run_id, commit), last_commit(session.lake, run_id) == commit
        get_run_logger().info(step_text(step.__name__, added, worked, time.monotonic() - began, is_idle))
        return result

    work.__doc__ = step.__doc__
    carried = Task(
        fn=work,
        name=step.__name__,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=2,
        retry_delay_seconds=10,
        retry_condition_fn=lambda task, run, state: not refused,
    )
    state: Any = carried(return_state=True)
    if refused:
        raise refused[-1]
    return state.result()


@contextmanager
def forward_worker_log(log: logging.Logger | logging.LoggerAdapter) -> Iterator[None]:
    """Forward the log "pairmill.workers" (lost and stuck workers, paths of their logs) to the task's log."""
    said = logging.getLogger("pairmill.workers")
    handler = logging.Handler()
    handler.emit = lambda record: log.log(record.levelno, record.getMessage())
    said.addHandler(handler)
    try:
        yield
    finally:
        said.removeHandler(handler)


def added_since(lake: Lake, run_id: str, commit: int) -> dict[str, int]:
    """Count the shards, and the rows of content and quarantine by table, that a run committed after ``commit``.

    Counts of 0 are left out.
    """
    found = partitions_since(lake, run_id, commit)
    counts = Counter({"shards": len({shard for _, shard, _ in found})})
    for name, _, rows in found:
        counts[name] += rows
    return {name: counts[name] for name in ("shards", *CONTENT, FAILED) if counts[name]}


def step_text(
    step: str, added: Mapping[str, int], worked: Mapping[tuple[str, str], int], seconds: float, is_idle: bool = False
) -> str:
    """Format the result of a step as one line.

    ``added``: shards and rows by table, from `added_since`. ``worked``: rows by (stage, unit); a stage with the unit ''
    is left out, several stages are named. ``is_idle``: the step has committed nothing.
    """
    stages = {stage: counted(n, unit) for (stage, unit), n in worked.items() if n and unit}
    counts = {name: counted(n, name) for name, n in added.items() if name != FAILED}
    one = len(stages) == 1
    said = [*counts.values(), *(text if one else f"{stage} {text}" for stage, text in stages.items())]
    said += [f"{added[FAILED]:,} in quarantine"] if added.get(FAILED) else []
    if is_idle and not said:
        return f"{step}: nothing was pending"
    took = f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
    return f"{step}: {', '.join([*dict.fromkeys(said), took])}"


class GrowingFunnel:
    """A step runner: runs steps as Prefect tasks, and shows the funnel after each `next_wave` that changed it.

    The funnel is that of the wave's own cut, so it costs one query and one request. Sentences are not in it: counting
    them takes as long as publishing. A text that is not generated yet counts as passing.
    """

    def __init__(self) -> None:
        self._shown: list[tuple] = []

    def __call__(self, step: Callable[[Session], Any], session: Session) -> Any:
        """Run a step as a Prefect task; return its result."""
        result = as_task(step, session)
        if step is next_wave:
            rows = [("image", *row) for row in image_funnel(session.lake, without_unset_thresholds(session.plan))]
            if rows != self._shown:
                with unless_refused("the funnel so far"):
                    create_funnel(session.recipe.name, rows, f"What each rule of {session.recipe.name} dropped so far")
                self._shown = rows
        return result
