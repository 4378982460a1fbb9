"""Another package's op that raises, exits, kills its process or hangs: a line that names it, or a quarantined row."""

import os
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Column, Score, Stage
from pairmill.ops.batch import Batch
from pairmill.ops.models.model_digest import ModelError
from pairmill.tasks.measure.scoring_job import run_op
from pairmill.tasks.run import stage
from pairmill.tasks.run.items import row_reports
from pairmill.tasks.run.items.partition import Output, Part
from pairmill.tasks.run.place.identity import Bound
from pairmill.tasks.run.place.placement import Placement

SCORE = Score(
    "vivid", "image", (Column("vividness", "DOUBLE", "x"),), stage=Stage.PIXELS, reads=("pixels",), package="p"
)
ERRORS = {"ValueError": ValueError("bad\nshape"), "KeyError": KeyError("\x1b[2J"), "SystemExit": SystemExit(3),
          "RecursionError": RecursionError("too deep"), "AssertionError": AssertionError()}  # fmt: skip


@dataclass(frozen=True)
class Ill:
    """An op that does what a row says; any other row gets 1.0."""

    version: int = 1

    def __call__(self, batch: Batch) -> Batch:
        for row in batch["pixels"]:
            if row in ERRORS:
                raise ERRORS[row]
            if row == "exits":
                sys.exit("enough")
            if row == "dies":
                os.kill(os.getpid(), signal.SIGKILL)
            if row == "hangs":
                time.sleep(3600)
        return batch | {"vividness": [1.0] * len(batch["pixels"])}


def scorer(score: Score = SCORE) -> Bound:
    return Bound(score, Ill(), "0" * 32)


@dataclass(frozen=True)
class Scores:
    """A job that runs the op row by row."""

    scorer: Bound

    def __call__(self, item: WorkItem) -> list[Part]:
        for key in item.keys:
            row_reports.begin(key, 1.0 if key == "hangs" else 60.0)
            run_op(self.scorer, {"pixels": [key]})
        row_reports.begin("", 60)
        return [self._part(item.keys, b"")]

    def poisoned(self, item: WorkItem) -> list[Part]:
        return [self._part(item.keys, None)]

    def _part(self, keys: tuple[str, ...], value: Any) -> Part:
        rows = {"sha256": list(keys), "image_vector": pa.array([value] * len(keys), pa.binary())}
        return Part("image_embedding", pa.table(rows), "s")


def run(folder: Path, *keys: str) -> list[dict]:
    with stage.JobStage(Scores(scorer()), Placement(workers=1)) as made:
        found = list(made.run([WorkItem("shard", keys)], Output(f"{folder}/", "run", 1)))
    return [row for part in found for each in part for row in pq.ParquetFile(each.path).read().to_pylist()]


@pytest.mark.parametrize("row", [*ERRORS, "exits"])
def test_what_it_raises_is_told_with_its_package_and_line(row: str):
    with pytest.raises(PairmillError) as told:
        run_op(scorer(), {"pixels": ["fine", row]})
    said = str(told.value)
    assert said.startswith("package 'p', score 'vivid': its op failed (") and "Update or uninstall the package" in said
    assert "\n" not in said and "test_strangers_op.py:" in said


def test_it_is_told_through_a_worker_process(tmp_path: Path):
    with pytest.raises(PairmillError, match=r"package 'p', score 'vivid': its op failed \(ValueError: bad shape"):
        run(tmp_path, "fine", "ValueError")


@pytest.mark.slow
@pytest.mark.parametrize(("row", "reason"), [("dies", "poison"), ("hangs", "timeout")])
def test_the_row_at_which_it_kills_its_process_or_hangs_is_quarantined_alone(row: str, reason: str, tmp_path: Path):
    found = run(tmp_path, "a", row, "b")
    assert {each["sha256"]: each["image_vector"] for each in found if "image_vector" in each} == {
        "a": b"", row: None, "b": b"",
    }  # fmt: skip
    assert [(each["item"], each["reason"]) for each in found if "reason" in each] == [(row, reason)]


@pytest.mark.parametrize("error", [ModelError("no such model"), MemoryError(), RuntimeError("CUDA error: device")])
def test_what_others_can_mend_is_raised_as_it_is(error: Exception, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(ERRORS, "mended", error)  # pyright: ignore
    with pytest.raises(type(error)) as told:
        run_op(scorer(), {"pixels": ["mended"]})
    assert told.value is error
