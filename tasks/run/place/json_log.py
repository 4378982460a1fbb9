"""Write logs as JSON, one object a line: time, level, run, stage, shard, message.

Other output of worker processes and libraries to standard error becomes such lines too: the run's process reads it by a
pipe in place of the terminal.
"""

import json
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import IO

from pairmill.catalog.terms.secrets import hide_secrets
from pairmill.tasks.run.place.progress import Observer, Progress

ASKED = "PAIRMILL_LOG_FORMAT"  # 'json' in the environment of this process and its workers
FIELDS = ("time", "level", "run", "stage", "shard", "message")
_END = "pairmill: end of the log\n"
_process = {"run": "", "stage": ""}
_shard: ContextVar[str] = ContextVar("shard", default="")


def is_asked() -> bool:
    """Return whether this process writes its log as JSON."""
    return os.environ.get(ASKED) == "json"


def work_at(run: str, stage: str, shard: str = "") -> None:
    """Set the run and stage of this process, and the shard of this thread, for all later lines of the log."""
    _process.update(run=run, stage=stage)
    _shard.set(shard)


def line(level: str, message: str) -> str:
    """Return one line of the log as JSON, with a line break; secrets in the message are hidden."""
    values = (datetime.now(UTC).isoformat(), level, *_process.values(), _shard.get(), hide_secrets(message))
    return json.dumps(dict(zip(FIELDS, values, strict=True))) + "\n"


class JsonFormatter(logging.Formatter):
    """Log formatter: a record, with its traceback, as one JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return a record as JSON, without a line break at its end."""
        return line(record.levelname, super().format(record)).removesuffix("\n")


def log_as_json() -> None:
    """Configure all loggers of this process to write JSON lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    logging.captureWarnings(True)


class LogLines(Observer):
    """Observer that logs the start and the end of each round, and sets the run and step that log lines name."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id

    def progressed(self, progress: Progress) -> None:
        """Log the start or the end of a round, with its rows and items; ignore other progress."""
        work_at(self._run_id, progress.step)
        if progress.is_begin or progress.is_end:
            rows = f"{progress.done:,} of {progress.total:,} {progress.unit or 'rows'}"
            logging.getLogger("pairmill").info("%s, %d of %d items", rows, progress.items, progress.of_items)


@contextmanager
def json_lines() -> Iterator[None]:
    """Write the log as JSON lines during the ``with`` block, also other output of child processes to standard error."""
    os.environ[ASKED] = "json"
    real, (read, write) = os.dup(2), os.pipe()
    os.dup2(write, 2)
    os.close(write)
    with os.fdopen(read, encoding="utf-8", errors="replace") as lines, os.fdopen(real, "w", encoding="utf-8") as out:
        reader = threading.Thread(target=_copy, args=(lines, out), name="log", daemon=True)
        reader.start()
        log_as_json()
        try:
            yield
        finally:
            os.write(2, _END.encode())  # workers may hold the pipe open, so that it has no end
            reader.join()
            os.dup2(real, 2)
            del os.environ[ASKED]


def _copy(lines: IO[str], out: IO[str]) -> None:
    """Copy JSON lines, and convert every other line to one, until the line _END."""
    for text in lines:
        if text == _END:
            return
        out.write(text if _is_ours(text) else line("WARNING", text.rstrip()))
        out.flush()


def _is_ours(text: str) -> bool:
    """Return whether a line is valid JSON of this log: two processes that write at once may mix their lines."""
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and tuple(found) == FIELDS
