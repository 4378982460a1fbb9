"""Children that `up` starts: awaited with a bound, told with their log, ended with all that they started."""

import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.with_prefect import processes
from pairmill.flows.with_prefect.local_prefect import free_port
from pairmill.flows.with_prefect.processes import Child, listens, start, stop, wait_for

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
CHILD = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {STUBBORN!r}])"
FAMILY = f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {CHILD!r}]); time.sleep(60)"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Start code as a child: ``python -m`` of a file in the temporary folder."""

    def begun(code: str) -> Child:
        (tmp_path / "begun.py").write_text(code)
        return start("a child", ["begun"], {}, tmp_path / "logs", tmp_path)

    monkeypatch.setattr(processes, "GRACE_SECONDS", 1.0)
    return begun


def family(pid: int, size: int) -> list[psutil.Process]:
    deadline = time.monotonic() + 30
    while len(found := [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]) < size:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


def test_stopping_ends_the_whole_family_even_what_ignores_it_and_nobody_else(module):
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        child = module(FAMILY)
        members = family(child.process.pid, 3)
        wait_for(child, lambda: "up" in child.log.read_text(), 30)
        stop(child)
        gone, alive = psutil.wait_procs(members, timeout=10)
        assert alive == [] and len(gone) == 3
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_stopping_twice_is_stopping_once(module):
    child = module("import time; time.sleep(60)")
    stop(child)
    stop(child)
    assert child.process.returncode is not None


def test_one_that_ends_before_it_is_up_is_told_with_the_end_of_its_log(module):
    child = module("print('port 1 is taken'); raise SystemExit(3)")
    with pytest.raises(PairmillError, match=r"(?s)ended by itself \(exit 3\).*port 1 is taken"):
        wait_for(child, lambda: False, 30)


def test_one_that_does_not_come_up_is_told_in_bounded_time(module):
    child = module("import time; print('slow', flush=True); time.sleep(60)")
    wait_for(child, lambda: "slow" in child.log.read_text(), 30)
    with pytest.raises(PairmillError, match=r"(?s)did not come up within 0 s.*slow"):
        wait_for(child, lambda: False, 0.2)
    stop(child)


def test_a_child_listens_where_it_or_its_own_does_and_nowhere_else(module):
    with socket.socket() as ours:
        ours.bind(("127.0.0.1", 0))
        ours.listen()
        code = "import socket, time; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True)"
        child = module(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code + '; time.sleep(60)'!r}])")
        wait_for(child, lambda: bool(child.log.read_text().strip()), 30)
        assert listens(child, int(child.log.read_text()))
        assert not listens(child, ours.getsockname()[1])
    stop(child)
    assert not listens(child, int(child.log.read_text()))


def test_a_taken_port_is_passed_over():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert free_port(port) not in (0, port)
    assert free_port(port) == port
