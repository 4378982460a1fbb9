"""What a killed run leaves in the folder of temporary files is gone after the next start; what lives stays."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

STARTED = """
import multiprocessing, os, signal, sys
from multiprocessing import forkserver
from pairmill.tasks.run.pool.fork_server import hold_folder, sweep_folders

def fork():
    sweep_folders()
    hold_folder()
    forkserver.set_forkserver_preload([])
    forkserver.ensure_running()
    process = multiprocessing.get_context("forkserver").Process(target=abs, args=(1,))
    process.start()
    process.join()
    print("ready", process.exitcode, flush=True)

if __name__ == "__main__":
    fork()
    for line in sys.stdin:
        server = forkserver._forkserver._forkserver_pid
        os.kill(server, signal.SIGKILL)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        print("killed", flush=True)
        sys.stdin.readline()
        fork()
"""


def started(folder: Path) -> subprocess.Popen:
    script = folder / "started.py"
    script.write_text(STARTED)
    environment = {**os.environ, "TMPDIR": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    run = subprocess.Popen([sys.executable, str(script)], env=environment, **pipes)
    assert told(run) == "ready 0"
    return run


def told(run: subprocess.Popen, line: str = "") -> str:
    """Send a line to the script, if one is given; return the line that it prints next."""
    assert run.stdin and run.stdout
    if line:
        run.stdin.write(f"{line}\n")
        run.stdin.flush()
    return run.stdout.readline().strip()


@pytest.mark.slow
def test_the_next_start_removes_what_a_killed_one_left_and_nothing_of_one_that_runs(tmp_path: Path):
    (tmp_path / "pymp-mine").mkdir()
    (tmp_path / "pymp-mine" / "data").touch()
    alive = started(tmp_path)
    (kept,) = {path.name for path in tmp_path.glob("pymp-*")} - {"pymp-mine"}
    killed = started(tmp_path)
    (left,) = {path.name for path in tmp_path.glob("pymp-*")} - {"pymp-mine", kept}
    killed.send_signal(signal.SIGKILL)
    killed.wait(30)
    assert (tmp_path / left).exists()
    assert told(alive, "kill your fork server") == "killed"
    after = started(tmp_path)
    assert not (tmp_path / left).exists()
    assert (tmp_path / kept).exists() and (tmp_path / "pymp-mine").exists()
    assert told(alive, "fork again") == "ready 0"
    for run in (alive, after):
        run.communicate(timeout=30)
    assert [path.name for path in tmp_path.glob("pymp-*")] == ["pymp-mine"]
