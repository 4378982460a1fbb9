"""The runner: both placements write equal rows, results stream, a bug fails the stage and keeps what was finished."""

import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.scores import SENTENCE_QUALITY
from pairmill.catalog.write.commit import Manifest
from pairmill.ops.text.sentence_quality import SentenceQuality
from pairmill.tasks.measure.score_contents import ScoreSentences
from pairmill.tasks.run.items.partition import Job, Output, Part, write_parts
from pairmill.tasks.run.place.identity import Bound
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.pool.watchdog import Watchdog
from pairmill.tasks.run.stage import JobStage
from tests.worlds.failing_jobs import FailsOn, HangsFor, OfModel, Slow, assert_one_is_poison_of_64

JOB = ScoreSentences((Bound(SENTENCE_QUALITY, SentenceQuality(), "a-scorer"),))
SENTENCES = ["A red fox sleeps.", "See www.example.com now", "Nothing", "The old bridge crosses the river twice."]


@pytest.fixture
def items(tmp_path: Path) -> list[WorkItem]:
    made = []
    for shard in range(6):
        contents = [f"{shard}-{n}" for n in range(len(SENTENCES))]
        path = tmp_path / f"sentences-{shard}.parquet"
        pq.write_table(pa.table({"content": contents, "text": SENTENCES, "commit": [1] * len(contents)}), path)
        made.append(WorkItem(f"shard-{shard}", tuple(contents[:3]), (str(path),), (SENTENCE_QUALITY.table,)))
    return made


def run(items: list[WorkItem], job: Job, output: Output, placement: Placement) -> Iterator[list[Manifest]]:
    with JobStage(job, placement) as stage:
        yield from stage.run(items, output)


def output(folder: Path, run_id: str = "run") -> Output:
    return Output(f"{folder}/", run_id, 7)


def flat(results: Iterable[list[Manifest]]) -> list[Manifest]:
    return [manifest for manifests in results for manifest in manifests]


def rows(manifests: list[Manifest]) -> dict[str, list[dict]]:
    return {each.partition_id: pq.read_table(each.path, partitioning=None).to_pylist() for each in manifests}  # pyright: ignore[reportArgumentType]


def test_rows_carry_shard_scorer_and_commit_and_only_the_asked_keys(items: list[WorkItem], tmp_path: Path):
    (first,) = flat(run(items[:1], JOB, output(tmp_path), Placement(workers=1)))
    written = pq.read_table(first.path, partitioning=None).to_pylist()  # pyright: ignore[reportArgumentType]
    assert [row["content"] for row in written] == ["0-0", "0-1", "0-2"]
    assert {(row["shard"], row["scorer"], row["commit"]) for row in written} == {("shard-0", "a-scorer", 7)}
    assert (first.rows, first.bytes) == (3, Path(first.path).stat().st_size)


def test_no_work_starts_no_worker(tmp_path: Path):
    assert list(run([], JOB, output(tmp_path), Placement())) == []


def test_a_bug_in_a_job_fails_the_stage_after_what_was_finished_came_out(items: list[WorkItem], tmp_path: Path):
    seen = []
    with pytest.raises(ZeroDivisionError):
        for (manifest,) in run(items, FailsOn("shard-5"), output(tmp_path), Placement(workers=1)):
            seen.append(manifest.shard)
    assert set(seen) <= {f"shard-{n}" for n in range(5)}
    assert seen


def test_a_part_without_rows_is_a_manifest_without_a_file(tmp_path: Path):
    empty = Part("sentence_quality", pa.table({"content": pa.array([], pa.string())}), "s")
    (manifest,) = write_parts([empty], WorkItem("shard", ("a",)), output(tmp_path))
    assert (manifest.rows, manifest.path) == (0, "")


def test_the_partition_id_follows_the_asked_rows_not_the_run(items: list[WorkItem], tmp_path: Path):
    part = Part("image_embedding", pa.table({"sha256": ["a"], "image_vector": [b""]}), "s")
    (one,) = write_parts([part], WorkItem("shard", ("a",)), output(tmp_path, "run1"))
    (two,) = write_parts([part], WorkItem("shard", ("a",)), output(tmp_path, "run2"))
    (other,) = write_parts([part], WorkItem("shard", ("a", "b")), output(tmp_path, "run2"))
    assert one.partition_id == two.partition_id != other.partition_id


HUNG = [WorkItem("good", ("a", "b")), WorkItem("hung", ("c", "d"))]
ON_RAY = Placement(workers=1, ray_address="local")
ENDED = r"Ray has ended the stage with items left.*run the same command again"


@contextmanager
def signalled(called: str, number: int) -> Iterator[None]:
    """Signal the processes of this test's Ray whose command line contains ``called``; kill them at the end."""
    found = [each for each in psutil.Process().children(recursive=True) if called in " ".join(each.cmdline())]
    assert found
    for each in found:
        each.send_signal(number)
    yield
    for each in found:
        with suppress(psutil.NoSuchProcess):
            each.kill()


@pytest.mark.slow
def test_the_loss_of_the_process_that_hands_items_out_loses_no_item(tmp_path: Path):
    work = [WorkItem(f"shard-{n}", (f"{n}",)) for n in range(80)]  # more than Ray holds at once
    with JobStage(Slow("", 0.1), ON_RAY) as stage:
        made = stage.run(work, output(tmp_path))
        first = next(made)
        with signalled("items of Slow", signal.SIGKILL):
            assert {each.shard for each in flat([first, *made])} == {item.shard for item in work}


@pytest.mark.slow
def test_a_stage_fails_instead_of_waiting_when_ray_ends_it_with_items_left(items: list[WorkItem], tmp_path: Path):
    with JobStage(Slow(""), ON_RAY) as stage:
        made = stage.run(items, output(tmp_path))
        assert next(made)
        with stage:
            pass  # its end takes the reader of the queue away, as the loss of its machine does
        with pytest.raises(PairmillError, match=ENDED):
            flat(made)


@pytest.mark.slow
def test_a_stage_fails_with_the_remedy_when_the_queue_of_its_items_is_lost(items: list[WorkItem], tmp_path: Path):
    with JobStage(Slow("", 5.0), ON_RAY) as stage:
        made = stage.run(items, output(tmp_path))
        assert next(made)
        with signalled("ItemQueue", signal.SIGKILL), pytest.raises(PairmillError, match=ENDED):
            flat(made)


@pytest.mark.slow
def test_a_key_of_64_that_kills_its_worker_on_ray_leaves_63_good_rows_and_one_poison_row(tmp_path: Path):
    assert_one_is_poison_of_64(ON_RAY, tmp_path)


@pytest.mark.slow  # 20 s; on a busy machine the workers of Ray, of low priority, may stall by themselves
def test_a_worker_that_hangs_on_ray_is_named_and_ended_and_its_item_is_done_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pairmill.tasks.run.stage.Watchdog", lambda minutes, show: Watchdog(minutes, 20, show))
    told: list[str] = []
    placed = Placement(workers=2, stall_minutes=0.2, ray_address="local")
    with JobStage(HangsFor(str(tmp_path), 1), placed, stalled=told.append) as stage:
        found = list(stage.run(HUNG, output(tmp_path)))
    assert sum(manifest.rows for manifests in found for manifest in manifests) == 4
    notes = [note for manifests in found for manifest in manifests for note in manifest.notes]
    named = [note for note in notes if " had c on " in note]
    assert named and named[0].startswith("nothing was finished for 0.2 minutes: worker process ")
    assert len(told) == len(notes) and any(named[0] in text for text in told)


@pytest.mark.slow  # 20 s
def test_items_that_ray_data_hands_to_nobody_are_noticed_and_handed_out_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pairmill.tasks.run.cluster.on_ray.IDLE_SECONDS", 6.0)
    work = [WorkItem(f"shard-{n}", (f"{n}",)) for n in range(80)]  # more than Ray holds at once
    with JobStage(Slow("", 0.1), ON_RAY) as stage:
        made = stage.run(work, output(tmp_path))
        first = next(made)
        with signalled("items of Slow", signal.SIGSTOP):  # a reader that neither fails nor reads
            found = flat([first, *made])
    assert {each.shard for each in found} == {item.shard for item in work}
    assert any("to idle workers" in note for manifest in found for note in manifest.notes)


@pytest.mark.full  # a minute
def test_an_actor_that_is_lost_just_before_its_first_item_does_not_stall_the_stage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pairmill.tasks.run.cluster.on_ray.START_SECONDS", 40.0)
    lost = threading.Thread(target=_kill_first_actor)
    lost.start()
    work = [WorkItem(f"shard-{n}", (f"{n}",)) for n in range(10)]
    with JobStage(Slow("", 0.1), ON_RAY) as stage:
        found = flat(stage.run(work, output(tmp_path)))
    lost.join()
    assert {each.shard for each in found} == {item.shard for item in work}
    assert any("to a new worker" in note for manifest in found for note in manifest.notes)


def _kill_first_actor() -> None:
    """Kill the first actor 1.5 s after its process appears: it is ready, and Ray Data has not seen that yet."""
    while True:
        for each in psutil.Process().children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                if "MapWorker(" in " ".join(each.cmdline()):
                    time.sleep(1.5)
                    each.kill()
                    return
        time.sleep(0.02)


@pytest.mark.slow
@pytest.mark.usefixtures("ray_ends")  # the last one here that has Ray in this process
def test_more_gpus_than_any_machine_has_are_refused_with_the_remedy(items: list[WorkItem], tmp_path: Path):
    asked = Placement(workers=1, ray_address="local", models={"clip": ModelPool(gpus=64)})
    with pytest.raises(
        PairmillError, match=r"asks for 1 CPUs and 64 GPUs, and no machine has as many \(2 CPUs, 0 GPUs\).*--model"
    ):
        flat(run(items, OfModel("x"), output(tmp_path), asked))
