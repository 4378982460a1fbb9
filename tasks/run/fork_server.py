"""Start the process that workers are forked from, with the libraries imported that they need."""

import multiprocessing
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver

from pairmill.tasks.run.preload import modules_for
from pairmill.tasks.run.remains import sweep
from pairmill.tasks.run.worker import ONE_THREAD

# Two of the libraries ask when they are imported whether there is a GPU. CUDA's own answer would break CUDA in a fork;
# so asked, torch says no without it. Workers that have a GPU are no forks.
WITHOUT_CUDA = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_VISIBLE_DEVICES": ""}
_modules: list[str] = []
_lock = threading.Lock()


def preload(specs: Sequence[str]) -> None:
    """Have the fork server import what models of these specs need. It does so when it is started, once a process."""
    _modules[:] = modules_for(specs)


def start_fork_server() -> None:
    """Start the fork server, unless it runs. It imports while the caller goes on; the first fork waits for it.

    A worker that is forked from it shares what it has imported. It is started when there is work: a run without any
    would pay for it too.
    """
    sweep()
    multiprocessing.get_context("forkserver").set_forkserver_preload(_modules or modules_for([""]))
    with one_thread_each(WITHOUT_CUDA):
        forkserver.ensure_running()


@contextmanager
def one_thread_each(more: dict[str, str] | None = None) -> Iterator[None]:
    """Set, for a process that is started in the body, the variables that libraries read when they are loaded.

    Workers are as many as the CPUs, so each keeps to one thread: two workers of two threads on two busy CPUs wait for
    each other at every step of a small model (seen: captions 30 times slower).
    """
    with _lock:  # of two threads the second would put back what the first has set
        before = dict(os.environ)
        os.environ.update(ONE_THREAD | (more or {}))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)
