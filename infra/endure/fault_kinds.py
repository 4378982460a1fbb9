"""The faults that a running curation is hit by: signals to its processes, kills at a chosen point, a jumping clock."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.endure.trial_world import ROOT

# Of a run of 6 documents. Steps that compare all items with all are aimed at one by one.
ALL_TO_ALL = ("train sentence centroids", "train image centroids", "assign image clusters", "perceptual duplicates",
              "semantic duplicates", "group duplicates", "perceptual sentence duplicates", "associate",
              "train balance centroids", "assign balance clusters", "publish")  # fmt: skip
OTHERS = ("ingest", "index contents", "score images", "count words", "train word probabilities", "score entropy",
          "score sentences", "parse sentences", "score perplexity", "embed sentences", "assign sentence clusters",
          "assign image routes", "group sentence duplicates", "score similarity", "caption main", "score captions",
          "tag", "fuse", "score fused texts", "next wave")  # fmt: skip
COMMITS = 60
# Longer than a lease lives without a heartbeat (90 s).
STOPPED_SECONDS = 110
CLOCK = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t id, struct timespec *at) {
  static int (*real)(clockid_t, struct timespec *);
  if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
  int result = real(id, at);
  const char *flag = getenv("JUMP_FLAG");
  if (id == CLOCK_REALTIME && flag && access(flag, F_OK) == 0) at->tv_sec += atol(getenv("JUMP_SECONDS"));
  return result;
}
"""
# Writes below a folder fail while a file exists. Mounting a small disk is refused in many containers.
FULL_DISK = """#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int is_full(int fd) {
  char link[64], path[4096];
  const char *flag = getenv("FULL_FLAG"), *folder = getenv("FULL_FOLDER");
  if (!flag || !folder || access(flag, F_OK) != 0) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  ssize_t n = readlink(link, path, sizeof path - 1);
  if (n < 0) return 0;
  path[n] = 0;
  return strncmp(path, folder, strlen(folder)) == 0;
}
#define FAILS(name, result, declared, given) \\
  result name declared { \\
    static result (*real) declared; \\
    if (is_full(fd)) { errno = ENOSPC; return -1; } \\
    if (!real) real = dlsym(RTLD_NEXT, #name); \\
    return real given; }
FAILS(write, ssize_t, (int fd, const void *data, size_t n), (fd, data, n))
FAILS(pwrite, ssize_t, (int fd, const void *data, size_t n, off_t at), (fd, data, n, at))
FAILS(pwrite64, ssize_t, (int fd, const void *data, size_t n, off64_t at), (fd, data, n, at))
"""


@dataclass
class Victim:
    """A running curation; ``stop`` waits a random part of ``seconds``, the time of an undisturbed run."""

    command: list[str]
    folder: Path
    seconds: float
    chance: random.Random
    environment: dict[str, str]

    def start(self, command: list[str] | None = None, **environment: str) -> subprocess.Popen[bytes]:
        """Start the curation, or another command in its place."""
        log = open(self.folder / "run.log", "wb")  # noqa: SIM115 the process has it
        return subprocess.Popen(
            command or self.command, cwd=ROOT, stdout=log, stderr=log, env=self.environment | environment
        )

    def sleep(self) -> None:
        """Wait for a random moment of the run."""
        time.sleep(self.seconds * self.chance.uniform(0.1, 0.95))

    def at(self, point: str) -> list[str]:
        """Return the command that kills itself at ``point``, see `killed_at`."""
        return [sys.executable, "-m", "infra.endure.killed_at", point, *self.command[3:]]


def signalled(number: signal.Signals) -> Callable[[Victim], None]:
    """Return a fault: a signal to the flow process at a random moment."""

    def strike(victim: Victim) -> None:
        process = victim.start()
        victim.sleep()
        process.send_signal(number)
        process.wait(timeout=120)

    return strike


def worker_killed(victim: Victim) -> None:
    """Kill a process below the flow process; the run itself must end well."""
    process = victim.start()
    victim.sleep()
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    if below:
        victim.chance.choice(below).kill()
    process.wait(timeout=300)


def stopped(victim: Victim) -> None:
    """Stop the lease's holder for longer than the lease; another run ends meanwhile; then it continues."""
    process = victim.start()
    victim.sleep()
    process.send_signal(signal.SIGSTOP)
    time.sleep(STOPPED_SECONDS)
    other = [*victim.command, "--wait", "5"]
    subprocess.run(other, cwd=ROOT, env=victim.environment, capture_output=True, timeout=600)
    process.send_signal(signal.SIGCONT)
    process.wait(timeout=300)


def in_commit(victim: Victim) -> None:
    """Kill the flow process right before or after some COMMIT."""
    end = victim.chance.choice(("before", "after"))
    victim.start(victim.at(f"{end} COMMIT {victim.chance.randint(1, COMMITS)}")).wait(timeout=300)


def in_step(name: str) -> Callable[[Victim], None]:
    """Return a fault: a kill within half a second of the beginning of a step."""

    def strike(victim: Victim) -> None:
        victim.start(victim.at(f"step {name} {victim.chance.uniform(0, 0.5):.3f}")).wait(timeout=300)

    return strike


def clock_jumps(victim: Victim) -> None:
    """Set the clock of the run's processes a day forward or back, at a random moment, by a library before libc."""
    library, flag = before_libc(victim.folder, CLOCK), victim.folder / "jump"
    seconds = victim.chance.choice((86_400, -86_400))
    process = victim.start(LD_PRELOAD=library, JUMP_FLAG=str(flag), JUMP_SECONDS=str(seconds))
    victim.sleep()
    flag.touch()
    process.wait(timeout=300)


def disk_full(victim: Victim) -> None:
    """Let every write below the lake fail for want of space, from a random moment to the end of the run."""
    lake, flag = victim.command[victim.command.index("--lake") + 1], victim.folder / "full"
    process = victim.start(LD_PRELOAD=before_libc(victim.folder, FULL_DISK), FULL_FLAG=str(flag), FULL_FOLDER=lake)
    victim.sleep()
    flag.touch()
    process.wait(timeout=300)
    flag.unlink()


def full_in(name: str) -> Callable[[Victim], None]:
    """Return a fault: every write below the lake fails from the beginning of a step on. The run must say so."""

    def strike(victim: Victim) -> None:
        lake, flag = victim.command[victim.command.index("--lake") + 1], victim.folder / "full"
        process = victim.start(
            victim.at(f"full in {name}"),
            LD_PRELOAD=before_libc(victim.folder, FULL_DISK),
            FULL_FLAG=str(flag),
            FULL_FOLDER=lake,
        )
        status = process.wait(timeout=600)
        if not flag.exists():
            raise RuntimeError(f"the run has no step '{name}': its world may be too small")
        flag.unlink()
        said = (victim.folder / "run.log").read_text(errors="replace")
        if status != 1 or "disk is full" not in said or "Traceback" in said:
            raise RuntimeError(f"on a full disk in '{name}' the run ended with {status}: {said[-2000:]}")

    return strike


def before_libc(folder: Path, code: str) -> str:
    """Compile C to a library that is loaded before libc; return its path."""
    library = str(folder / "before_libc.so")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", library, "-xc", "-", "-ldl"], input=code.encode(), check=True)
    return library


FAULTS: dict[str, Callable[[Victim], None]] = {
    "kill -9 of the flow process": signalled(signal.SIGKILL),
    "kill -9 of a worker": worker_killed,
    "SIGTERM": signalled(signal.SIGTERM),
    "Ctrl-C": signalled(signal.SIGINT),
    "kill -9 beside a COMMIT": in_commit,
    "the clock jumps by a day": clock_jumps,
    "the disk is full": disk_full,
    "stopped for longer than the lease": stopped,
    **{f"kill -9 in '{name}'": in_step(name) for name in ALL_TO_ALL},
}
FULL: dict[str, Callable[[Victim], None]] = {
    f"the disk is full in '{name}'": full_in(name) for name in (*OTHERS, *ALL_TO_ALL)
}


def environment() -> dict[str, str]:
    """Return this process's environment with the repository on the path."""
    return os.environ | {"PYTHONPATH": str(ROOT)}
