"""Start the fork server, the process from which workers are forked with their libraries already imported."""

import fcntl
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import forkserver
from multiprocessing.util import get_temp_dir
from pathlib import Path
from types import ModuleType

from pairmill.catalog.terms.backend import declared_backends
from pairmill.tasks.run.pool.worker import ONE_THREAD

# Two of the libraries look for a GPU when they are imported. Initialising CUDA there would break CUDA in every fork;
# these variables make torch report no GPU without initialising it. Workers that have a GPU are spawned, not forked.
WITHOUT_CUDA = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", "CUDA_VISIBLE_DEVICES": ""}
# Third-party modules that every worker needs, and that each kind of model needs; backends of generative models declare
# their own. All cost 9 CPU seconds and 0.6 GB (two busy CPUs of an EPYC). None starts a thread or touches a GPU when it
# is imported. DuckDB is left out: `import duckdb` opens a database with a thread for each CPU but one, and a fork has
# none of these threads.
EVERY_WORKER = ("numpy", "pyarrow.parquet", "fsspec", "aiohttp", "pydantic", "simplejpeg", "PIL.Image")
EVERY_MODEL = ("torch", "pairmill.ops.models.device.quick_imports")
CLIP, PARSER = ("torchvision", "timm", "open_clip"), ("spacy",)
# Imported first and last: no garbage is collected in between, and existing objects are then exempt from collection,
# whose marks would copy worker pages.
FIRST, LAST = "pairmill.tasks.run.pool.uncollected", "pairmill.tasks.run.pool.freeze"
# A lock file in the temporary folder that `multiprocessing` makes for this process. Each fork server and the queues of
# other libraries have their sockets there until the process ends, and with it the lock: the folder of a killed process
# is not locked, and is removed.
HOLDER = "pairmill-holder"
_modules: list[str] = []
_started = threading.Event()
_held: dict[Path, int] = {}
_lock = threading.Lock()
_main_lock = threading.Lock()


def preload(specs: Iterable[str]) -> None:
    """Set the modules that the fork server imports at its start, by the model specs of the run."""
    _modules[:] = modules_for(specs)


def modules_for(specs: Iterable[str]) -> list[str]:
    """List the modules that workers need for the models ``specs`` (``open_clip:…``, ``hf:…``), in order of import."""
    wanted = tuple(specs)
    generative = {prefix: backend.libraries for prefix, backend in declared_backends().items()}
    libraries = {"": EVERY_MODEL, "open_clip:": CLIP, **generative, "spacy:": PARSER}
    by_model = [names for prefix, names in libraries.items() if any(spec.startswith(prefix) for spec in wanted)]
    return [FIRST, *EVERY_WORKER, *(name for names in by_model for name in names), LAST]


def start_fork_server() -> None:
    """Start the fork server unless it is running. It imports while the caller continues; the first fork waits for it.

    Forked workers share what the server has imported. The server is started only when there is work: a run without work
    would pay for the imports too.
    """
    multiprocessing.get_context("forkserver").set_forkserver_preload(_modules or modules_for([""]))
    with one_thread_each(WITHOUT_CUDA), without_interrupts():
        sweep_folders()
        hold_folder()
        forkserver.ensure_running()
        _started.set()


def is_running() -> bool:
    """Return whether this process has started the fork server."""
    return _started.is_set()


@contextmanager
def one_thread_each(more: dict[str, str] | None = None) -> Iterator[None]:
    """Set the environment variables for one thread in numeric libraries, and ``more``, during the ``with`` block.

    A process that is started in the block inherits them. There is one worker per CPU, so each uses one thread: two
    workers of two threads on two busy CPUs wait for each other at every step of a small model (measured: captions 30
    times slower).
    """
    with _lock:  # a second thread would restore the variables that the first has set
        before = dict(os.environ)
        os.environ.update(ONE_THREAD | (more or {}))
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


@contextmanager
def without_interrupts() -> Iterator[None]:
    """Block SIGINT in this thread during the ``with`` block, and so in a process that is started there.

    Ctrl-C in a terminal reaches every process. One that still imports its libraries would print a traceback.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_main() -> Iterator[None]:
    """Hide this process's main module during the ``with`` block, so that a process started there does not import it.

    A worker needs nothing of it. `multiprocessing` would run the user's script again in each worker: without an
    ``if __name__ == "__main__"`` each would start a run of its own, and fail.
    """
    with _main_lock:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def hold_folder() -> None:
    """Lock this process's temporary folder, so that no other process removes it."""
    folder = Path(get_temp_dir())
    if folder in _held:
        return
    new = folder / f"{HOLDER}-{os.getpid()}"
    with suppress(OSError):  # a file system without locks: the folder is never removed by another process
        _held[folder] = os.open(new, os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(_held[folder], fcntl.LOCK_EX | fcntl.LOCK_NB)
        new.rename(folder / HOLDER)  # locked before others can see it


def sweep_folders() -> None:
    """Remove the temporary folders of Pairmill's ended processes: those with an unlocked file HOLDER."""
    for held in Path(tempfile.gettempdir()).glob(f"pymp-*/{HOLDER}"):
        if held.parent not in _held and _is_free(held):
            shutil.rmtree(held.parent, ignore_errors=True)


def _is_free(held: Path) -> bool:
    """Return whether the process that locked the file has ended. False if the file is another user's."""
    try:
        number = os.open(held, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(number)
    return True
