"""Little memory ends a command in one line with the remedy, whatever library is the first to lack it."""

import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest

from pairmill.flows.user_error import user_message
from tests.worlds.published import published

SHARED_OBJECT = "failed to map segment from shared object"


def caused_by(error: BaseException) -> BaseException:
    """Return an error of ours that another has caused."""
    found = RuntimeError("the step failed")
    found.__cause__ = error
    return found


@pytest.mark.parametrize("error", [
    MemoryError(),
    pa.ArrowMemoryError("malloc of size 64 failed"),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    ImportError(f"libarrow.so: {SHARED_OBJECT}"),
    duckdb.IOException(f'IO Error: Extension "ducklake" could not be loaded: {SHARED_OBJECT}'),
    duckdb.OutOfMemoryException("Out of Memory Error: Allocation failure"),
    RuntimeError("can't start new thread"),
    RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    caused_by(MemoryError()),
], ids=lambda error: type(error).__name__)  # fmt: skip
def test_an_error_for_want_of_memory_is_a_line_with_the_remedy(error: BaseException):
    line = user_message(error)
    assert line and line.startswith("memory does not suffice. Free some,") and "\n" not in line


@pytest.mark.parametrize("error", [
    ValueError("a mistake in the program"),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be reported asynchronously"),
    RuntimeError("HIP out of memory. Tried to allocate 2.00 GiB"),
], ids=lambda error: str(error)[:9])  # fmt: skip
def test_another_error_of_the_program_or_of_a_gpu_keeps_its_traceback(error: BaseException):
    assert user_message(caused_by(error)) is None


def test_a_name_that_half_a_module_lacks_is_for_want_of_memory_under_a_limit_alone(monkeypatch: pytest.MonkeyPatch):
    error = ImportError("cannot import name 'MODULES' from 'torch._dynamo.utils'")
    assert user_message(error) is None
    monkeypatch.setattr(resource, "getrlimit", lambda _: (4_000_000_000,) * 2)
    line = user_message(error)
    assert line and line.startswith("memory does not suffice") and "4,000 MB" in line
    assert user_message(ModuleNotFoundError("No module named 'spacy'")) is None


def test_under_a_limit_python_takes_the_allocator_of_the_commands():
    asked = "import pairmill as pm; pm.open; import pyarrow; print(pyarrow.default_memory_pool().backend_name)"
    limited = lambda: resource.setrlimit(resource.RLIMIT_AS, (6 * 10**9,) * 2)  # noqa: E731
    done = subprocess.run([sys.executable, "-c", asked], preexec_fn=limited, capture_output=True, text=True)
    assert done.stdout.split() == ["system"], done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("megabytes", "status"), [(700, 1), (1500, 0)])
def test_a_command_under_a_small_limit_ends_or_says_so_in_one_line(tmp_path: Path, megabytes: int, status: int):
    """The command takes some 900 MB of address space; below 500 MB libraries may crash."""
    published(tmp_path)
    command = [sys.executable, "-m", "pairmill", "recut", "small", "--dry-run", "--lake", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    most = (megabytes * 10**6,) * 2
    limited = lambda: resource.setrlimit(resource.RLIMIT_AS, most)  # noqa: E731
    done = subprocess.run(command, preexec_fn=limited, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == status and len(done.stderr.splitlines()) == status, done.stderr
