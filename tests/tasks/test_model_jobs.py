"""A model job on its engine: each row once and its own, a death costs what was in hand, a model is loaded once."""

import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest
from pairmill.tasks.run.items.partition import Output
from pairmill.tasks.run.place.placement import Placement
from pairmill.tasks.run.place.resources import LANES
from pairmill.tasks.run.pool import pool
from pairmill.tasks.run.pool.pool import Pace
from pairmill.tasks.run.stage import JobStage
from tests.worlds.placements import FED
from tests.worlds.sleeping_model import Sleeps, noted


@pytest.fixture(autouse=True)
def pools_of_their_own() -> Iterator[None]:
    """A worker of another test has its model, and counts no load."""
    pool.dismiss()
    yield
    pool.dismiss()


def items(n: int, rows: int = 10, special: tuple[str, ...] = ()) -> list[WorkItem]:
    """Make items of ``rows`` rows; each of the ``special`` keys stands in the middle of one of its own."""
    made = [WorkItem(f"shard-{n}", tuple(f"{n}-{row}" for row in range(rows))) for n in range(n)]
    for place, key in enumerate(special):
        keys = made[place].keys
        made[place] = WorkItem(made[place].shard, (*keys[: rows // 2], key, *keys[rows // 2 :]))
    return made


def run(work: list[WorkItem], job: Sleeps, out: Path, where: Placement = FED) -> list[list[Manifest]]:
    with JobStage(job, where) as stage:
        return list(stage.run(work, Output(f"{out}/", "run", 1)))


def rows(results: list[list[Manifest]], table: str = "image_embedding") -> list[dict]:
    paths = [each.path for manifests in results for each in manifests if each.table == table]
    read = (pq.read_table(path, partitioning=None) for path in paths)  # pyright: ignore[reportArgumentType]
    return [row for each in read for row in each.to_pylist()]


def test_every_row_comes_out_once_with_its_own_vector_as_it_does_one_by_one(tmp_path: Path):
    work = items(12)
    fed = rows(run(work, Sleeps(str(tmp_path), infers=0.002), tmp_path / "fed"))
    alone = rows(run(work, Sleeps(str(tmp_path)), tmp_path / "alone", Placement(workers=2)))
    assert sorted(row["sha256"] for row in fed) == sorted(key for item in work for key in item.keys)
    assert all(row["image_vector"] == row["sha256"].encode() for row in fed)
    assert sorted(map(str, fed)) == sorted(map(str, alone))


@pytest.mark.parametrize("where", [FED, Placement(workers=1)], ids=["on an engine", "piece by piece"])
def test_rows_of_an_item_at_work_are_shown_before_it_is_finished(
    where: Placement, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(pool, "SHOW_SECONDS", 0.01)
    monkeypatch.setattr(Pace, "LOOK_SECONDS", 0.01)
    shown: list[int] = []
    with JobStage(Sleeps(str(tmp_path), batch=2, infers=0.1), where) as stage:
        found = list(stage.run(items(1), Output(f"{tmp_path}/out/", "run", 1), shown.append))
    assert len(found) == 1 and shown == sorted(shown)
    assert {2, 4, 6} & set(shown) and set(shown) <= {0, 2, 4, 6, 8, 10}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "reason", "said"),
    [
        ("dies", "poison", "died"),
        ("crashes-decoder", "poison", "died"),
        ("breaks", "poison", "broke the device"),
        ("hangs", "timeout", "time was over"),
    ],
)
def test_a_row_that_ends_its_worker_is_quarantined_and_only_what_was_in_hand_is_tried_row_by_row(
    key: str, reason: str, said: str, tmp_path: Path
):
    work = items(8, special=("fine", key))
    results = run(work, Sleeps(str(tmp_path), infers=0.01), tmp_path / "out")
    good = [row["sha256"] for row in rows(results)]
    assert sorted(good) == sorted(each for item in work for each in item.keys if each != key)
    (told,) = rows(results, "quarantine")
    assert (told["item"], told["reason"]) == (key, reason) and said in told["detail"]
    lives = [noted(tmp_path, f"inferred-{pid}") for pid in noted(tmp_path, "loads")]
    assert len(lives) <= 1 + 3  # the batch, the row in it, the row alone
    shard = {each: item.shard for item in work for each in item.keys}
    for n, life in enumerate(lives):
        # Only items that were in flight at its death are made again.
        again = set(life) & {each for later in lives[n + 1 :] for each in later}
        assert len({shard[each] for each in again}) <= LANES
    assert max(Counter(noted(tmp_path, "inferred")).values()) <= 1 + len(lives)


def test_a_bug_fails_the_stage_and_is_no_poison(tmp_path: Path):
    with pytest.raises(ZeroDivisionError):
        run(items(6, special=("is-a-bug",)), Sleeps(str(tmp_path)), tmp_path / "out")


def test_a_model_is_loaded_once_a_replica_and_death_over_three_rounds(tmp_path: Path):
    job = Sleeps(str(tmp_path), infers=0.01)
    with JobStage(job, FED) as stage:
        for n in range(3):
            work = [WorkItem(f"{n}-{item.shard}", item.keys) for item in items(6, special=("dies",) if n == 1 else ())]
            assert len(list(stage.run(work, Output(f"{tmp_path}/out/", "run", n)))) == 6
    assert len(noted(tmp_path, "loads")) == 1 + 3  # the batch, the row in it, the row alone


@pytest.mark.slow
def test_a_kill_from_outside_repeats_about_one_item(tmp_path: Path):
    """Of 12 items of 40 rows, killed in the middle of one: what is on the device, and what is not yet written."""
    job, work = Sleeps(str(tmp_path), infers=0.02), items(12, rows=40)
    results: list[list[Manifest]] = []
    worker = threading.Thread(target=lambda: results.extend(run(work, job, tmp_path / "out")))
    worker.start()
    while len(noted(tmp_path, "inferred")) < 5 * 40 + 20:
        time.sleep(0.01)
    os.kill(int(noted(tmp_path, "loads")[0]), signal.SIGKILL)
    worker.join()
    assert len(rows(results)) == 12 * 40 and not rows(results, "quarantine")
    again = Counter(noted(tmp_path, "inferred"))
    assert 0 < sum(n - 1 for n in again.values()) <= 1.5 * 40


@pytest.mark.parametrize("where", [FED, Placement(workers=1)], ids=["engine", "one by one"])
def test_a_process_that_dies_while_it_loads_its_model_blames_no_row_and_ends_the_run(where: Placement, tmp_path: Path):
    (tmp_path / "dies-loading").touch()
    with pytest.raises(PairmillError, match=r"died 3 times before they had a row in hand.*--model NAME:replicas=1"):
        run(items(4), Sleeps(str(tmp_path)), tmp_path / "out", where)
