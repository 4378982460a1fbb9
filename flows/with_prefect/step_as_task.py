"""Run a step as a Prefect task, which is shown and retried there."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from prefect import Task, get_run_logger
from prefect.cache_policies import NO_CACHE

from pairmill.flows.user_error import user_message
from pairmill.tasks.run.session import Session


def as_task(step: Callable[[Session], Any], session: Session) -> Any:
    """Run ``step`` as a Prefect task of its name, with two retries for errors that a user need not mend.

    The session is a closure: Prefect would inspect an argument, with the lake inside it. The catalog remembers what is
    done, so Prefect need not (no cache, no stored result), and a retry continues from there.
    """

    def work() -> Any:
        before = dict(session.counts)
        with _forward_worker_log(get_run_logger()):
            result = step(session)
        done = {name: n - before.get(name, 0) for name, n in session.counts.items()}
        said = ", ".join(f"{name} {n}" for name, n in done.items() if n) or "no work items"
        get_run_logger().info(f"{step.__name__}: {said}")
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
    """Show in the task's log what is said of its workers: where their logs are, who is stuck, lost or waited for."""
    said = logging.getLogger("pairmill.workers")
    handler = logging.Handler()
    handler.emit = lambda record: log.log(record.levelno, record.getMessage())
    said.addHandler(handler)
    try:
        yield
    finally:
        said.removeHandler(handler)


def _may_pass(task: Any, run: Any, state: Any) -> bool:
    """Whether a retry may succeed: not after an error that its user must mend."""
    error = state.result(raise_on_failure=False)
    return not (isinstance(error, BaseException) and user_message(error) is not None)
