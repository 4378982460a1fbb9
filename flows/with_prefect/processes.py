"""Start, wait for and stop the child processes of `pairmill up` and their descendants, and no other process."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from pairmill.catalog.terms.error import PairmillError

TAIL_LINES = 25
GRACE_SECONDS = 20.0


@dataclass
class Child:
    """A running child process; its output goes to the file ``log``."""

    name: str
    process: subprocess.Popen
    log: Path

    def check(self) -> None:
        """Raise PairmillError with the end of the log if the process has exited by itself."""
        if self.process.poll() is not None:
            raise PairmillError(f"{self.name} ended by itself (exit {self.process.returncode}).\n{self.tail()}")

    def tail(self) -> str:
        """Return the last TAIL_LINES lines of the log, after a line that names it."""
        lines = self.log.read_text(errors="replace").splitlines()[-TAIL_LINES:]
        return "\n".join([f"the end of {self.log}:", *lines])


def start(name: str, command: Sequence[str], environment: dict[str, str], folder: Path, cwd: Path) -> Child:
    """Start `python -m` with ``command`` (module and arguments) in its own session, which Ctrl-C does not reach.

    ``environment`` adds variables, ``folder`` gets the log, ``cwd`` is the working directory.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"{name.replace(' ', '-')}.log"
    with open(log, "wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", *command],
            env={**os.environ, **environment},
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Child(name, process, log)


def wait_for(child: Child, is_up: Callable[[], bool], seconds: float) -> None:
    """Wait until ``is_up`` returns True.

    Raises PairmillError, with the end of the log, if ``child`` exits or takes longer than ``seconds``.
    """
    deadline = time.monotonic() + seconds
    while not is_up():
        child.check()
        if time.monotonic() > deadline:
            raise PairmillError(f"{child.name} did not come up within {seconds:.0f} s.\n{child.tail()}")
        time.sleep(0.3)


def listens(child: Child, port: int) -> bool:
    """Return whether the child or one of its descendants, and no other program, listens on TCP ``port``."""
    for process in [child.process.pid, *(each.pid for each in _descendants(child))]:
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            for each in psutil.Process(process).net_connections("tcp"):
                if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port:
                    return True
    return False


def stop(child: Child) -> None:
    """Stop the child and its descendants: its own children first, then kill those that outlast GRACE_SECONDS.

    This order lets a flow run close its lake and report its end while its parent listens. A second Ctrl-C is ignored.
    """
    with _signals_ignored():
        direct = _descendants(child, recursive=False)
        family = _descendants(child)  # listed last: it has every process that gets SIGTERM
        for process in direct:
            _signal(process, signal.SIGTERM)
        psutil.wait_procs(direct, timeout=GRACE_SECONDS)
        for process in family:
            _signal(process, signal.SIGKILL)
        if child.process.poll() is None:
            child.process.terminate()
        try:
            child.process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            child.process.kill()
            child.process.wait()


@contextmanager
def _signals_ignored() -> Iterator[None]:
    """Ignore SIGINT and SIGTERM during the ``with`` block, in the main thread: others may not set handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _descendants(child: Child, recursive: bool = True) -> list[psutil.Process]:
    """List all living descendants of a child, or its own children alone."""
    try:
        return psutil.Process(child.process.pid).children(recursive=recursive)
    except psutil.NoSuchProcess:
        return []


def _signal(process: psutil.Process, number: int) -> None:
    """Send a signal; psutil checks that the pid still belongs to this process."""
    with suppress(psutil.NoSuchProcess):
        process.send_signal(number)
