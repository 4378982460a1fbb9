"""Log people's judgements of pairs in a folder beside the lake: append-only JSON lines, which need no lease.

A run may hold the lease for weeks, so judgements do not wait for it: `register_judgements` copies them into the lake's
tables later. On this machine each log has one file, whose lines are synced to disk one by one. On S3, which cannot
append, each line is an object of its own.
"""

import os
import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import folder_of_people
from pairmill.catalog.lake.stored_files import remove_file, sync
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.whole_file import whole_file

FOLDER = "judgements"
Id = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
Verdict = Literal["match", "mismatch", "unsure", "undone"]


def new_id() -> str:
    """Return a random id of 32 hex digits."""
    return uuid.uuid4().hex


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    at: datetime = Field(default_factory=lambda: datetime.now(UTC))


class DrawnSample(_Line):
    """A simple random sample of images to judge, and the frame (population) that it is drawn from.

    The frame are the images of ``dataset@version`` (with its ``content_digest`` at that time) that the version keeps,
    or drops by ``rule``, and whose ``quantity``, an SQL expression over score columns, is at least ``threshold``. The
    sample is the frame in the order of sha256(image_id || seed): its first n images are a simple random sample of n.
    """

    line: Literal["sample"] = "sample"
    sample_id: Id = Field(default_factory=new_id)
    dataset: str = Field(max_length=200)
    version: int = Field(ge=1, lt=2**31)
    content_digest: str = Field(max_length=64)
    rule: str = Field(max_length=200)
    quantity: str = Field(max_length=4000)
    threshold: float = Field(allow_inf_nan=False)
    population: int = Field(ge=0, lt=2**63)
    seed: Id = Field(default_factory=new_id)


class Judgement(_Line):
    """One judgement of an image with its text, at ``position`` (from 0) of its sample.

    A judge's newest judgement of an image in a sample counts; 'undone' revokes it. ``value`` is its ``quantity``.
    """

    line: Literal["judgement"] = "judgement"
    judgement_id: Id = Field(default_factory=new_id)
    sample_id: Id
    position: int = Field(ge=0, lt=2**63)
    image_id: Id
    text: str = Field(max_length=100_000)
    value: float = Field(allow_inf_nan=False)
    verdict: Verdict
    judge: str = Field(max_length=200)


_SCHEMA = TypeAdapter(Annotated[DrawnSample | Judgement, Field(discriminator="line")])


@dataclass(frozen=True)
class LogContent:
    """The valid lines of all logs beside a lake, oldest first. ``faults`` names the lines that are not valid."""

    samples: tuple[DrawnSample, ...]
    judgements: tuple[Judgement, ...]
    faults: tuple[str, ...]


class JudgementLog:
    """Append-only log of the judgements of one process, thread-safe. Other processes write files of their own."""

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._folder = folder_of_people(lake, FOLDER)
        self._name = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{new_id()[:8]}"
        self._written = 0
        self._lock = threading.Lock()

    def append(self, line: DrawnSample | Judgement) -> None:
        """Append a line; it is synced to disk when this returns. Raise PairmillError if the folder is not writable."""
        data = line.model_dump_json() + "\n"
        try:
            with self._lock:  # objects on S3 are numbered
                self._put(data) if self._folder.startswith("s3://") else self._add(data)
        except OSError as error:
            raise PairmillError(
                f"the judgement was not written to {self._folder}: {error.strerror or error}. Make the folder "
                "writable for this user, then judge again."
            ) from error

    def _add(self, data: str) -> None:
        folder = Path(self._folder)
        folder.mkdir(exist_ok=True)
        with open(folder / f"{self._name}.jsonl", "ab") as file:
            file.write(data.encode())
            file.flush()
            os.fsync(file.fileno())
        if not self._written:
            sync(str(folder))
        self._written += 1

    def _put(self, data: str) -> None:
        name = f"{self._folder}/{self._name}-{self._written:06}.jsonl"
        plain = "(FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01')"
        self._lake.execute(f"COPY (SELECT {quoted(data.rstrip())}) TO {quoted(name)} {plain}")
        self._written += 1


def read_log(lake: Lake) -> LogContent:
    """Read all logs beside a lake, oldest line first; leave out an incomplete last line of a killed process."""
    samples, judgements, faults = [], [], []
    for path, text in _texts(lake):
        whole, _, _ = text.rpartition("\n")
        for number, line in enumerate(whole.split("\n") if whole else (), 1):
            try:
                found = _SCHEMA.validate_json(line)
            except ValidationError as error:
                faults.append(f"{path}, line {number}: {error.errors()[0]['msg']}")
                continue
            (samples if isinstance(found, DrawnSample) else judgements).append(found)
    return LogContent(
        tuple(sorted(samples, key=lambda each: (each.at, each.sample_id))),
        tuple(sorted(judgements, key=lambda each: (each.at, each.judgement_id))),
        tuple(faults),
    )


def forget_lines(lake: Lake, taken: Callable[[Judgement], bool]) -> int:
    """Remove the judgements for which ``taken`` is true from all logs, and invalid lines; return their number.

    Nobody should judge meanwhile: a line written at the same moment may be lost.
    """
    forgotten = 0
    for path, text in _texts(lake):
        kept = [line for line in text.splitlines(keepends=True) if not _is_taken(line, taken)]
        forgotten += text.count("\n") - len(kept)
        if path.startswith("s3://"):
            if not kept:
                remove_file(path)
        elif len(kept) < text.count("\n"):
            with whole_file(path) as new:
                new.write_text("".join(kept), encoding="utf-8")
    return forgotten


def _is_taken(line: str, taken: Callable[[Judgement], bool]) -> bool:
    """Return whether a line is of a taken judgement, or not valid."""
    try:
        found = _SCHEMA.validate_json(line)
    except ValidationError:
        return True
    return isinstance(found, Judgement) and taken(found)


def _texts(lake: Lake) -> list[tuple[str, str]]:
    """Return (path, text) of every log, by path."""
    folder = folder_of_people(lake, FOLDER)
    if not folder.startswith("s3://"):
        found = sorted(Path(folder).glob("*.jsonl"))
        return [(str(path), path.read_text(encoding="utf-8", errors="replace")) for path in found]
    files = quoted(f"{folder}/*.jsonl")
    if not lake.query(f"SELECT 1 FROM glob({files}) LIMIT 1"):
        return []
    return lake.query(f"SELECT filename, content FROM read_text({files}) ORDER BY filename")


def register_judgements(lake: Lake) -> int:
    """Insert every logged sample and judgement that the tables lack, in one transaction; return their number.

    The logs stay. Invalid lines are left out: the browser's page names them. Requires the lease; raises LeaseLost.
    """
    logged = read_log(lake)
    if not logged.samples and not logged.judgements:
        return 0
    import pyarrow as pa  # 0.1 CPU s, which pages that show judgements save

    def body() -> int:
        samples = _missing(lake, "judgement_samples", "sample_id", logged.samples)
        judgements = _missing(lake, "judgements", "judgement_id", logged.judgements)
        for table, lines in (("judgement_samples", samples), ("judgements", judgements)):
            if lines:
                lake.insert(table, pa.Table.from_pylist([line.model_dump(exclude={"line"}) for line in lines]))
        return len(samples) + len(judgements)

    return lake.retrying(body)


def _missing(lake: Lake, table: str, key: str, lines: tuple[BaseModel, ...]) -> list[BaseModel]:
    """Return the lines whose key is not in the table."""
    known = {row[0] for row in lake.query(f"SELECT {key} FROM {table}")}
    return [line for line in lines if getattr(line, key) not in known]
