"""Run a step as a Prefect task, which Prefect shows and retries."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect import Task, get_run_logger
from prefect.cache_policies import NO_CACHE

from pairmill.catalog.write.runs import last_commit
from pairmill.flows.user_error import user_message
from pairmill.flows.with_prefect.step_text import added_since, step_text
from pairmill.tasks.run.session import Session


def as_task(step: Callable[[Session], Any], session: Session) -> Any:
    """Run ``step`` as a Prefect task of its name, with two retries except for errors that the user must fix.

    The session is captured in a closure, because Prefect would inspect an argument, with the lake inside it. Prefect
    caches and stores no result: the catalog records all completed work, and a retry continues from there.
    """

    def work() -> Any:
        run_id = session.writer.run_id
        before, commit, began = dict(session.rows), last_commit(session.lake, run_id), time.monotonic()
        with _forward_worker_log(get_run_logger()):
            result = step(session)
        worked = {key: n - before.get(key, 0) for key, n in session.rows.items()}
        added = added_since(session.lake, run_id, commit)
        get_run_logger().info(step_text(step.__name__, added, worked, time.monotonic() - began))
        return result

    work.__doc__ = step.__doc__
    carried = Task(
        fn=work,
        name=step.__name__,
        cache_policy=NO_CACHE,
        persist_result=False,
        retries=2,
        retry_delay_seconds=10,
        retry_condition_fn=_may_pass,
    )
    return carried()


@contextmanager
def _forward_worker_log(log: logging.Logger | logging.LoggerAdapter) -> Iterator[None]:
    """Forward the log of workers to the task's log: where their logs are, which worker is stuck, lost or waited for."""
    said = logging.getLogger("pairmill.workers")
    handler = logging.Handler()
    handler.emit = lambda record: log.log(record.levelno, record.getMessage())
    said.addHandler(handler)
    try:
        yield
    finally:
        said.removeHandler(handler)


def _may_pass(task: Any, run: Any, state: Any) -> bool:
    """Return whether a retry may succeed: False for an error that the user must fix."""
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, BaseException) and user_message(error) is not None)
