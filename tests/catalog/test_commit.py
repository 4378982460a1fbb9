import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import LeaseLost, PairmillError
from pairmill.catalog.write import lease
from pairmill.catalog.write.commit import Manifest, Usage, commit
from pairmill.catalog.write.lease import commit_stream
from tests.worlds.partitions import partition
from tests.worlds.shared import opened_new


def n_rows(lake: Lake) -> int:
    return lake.query("SELECT count(*) FROM image_hash")[0][0]


def test_a_partition_that_is_committed_again_changes_nothing(lake: Lake) -> None:
    manifest = partition(lake, "p", ["a", "b"])
    assert commit(lake, [manifest, manifest]) == 1
    assert commit(lake, [manifest]) == 0
    assert commit(lake, [replace(manifest, path=manifest.path.removeprefix(lake.data_path))]) == 0
    # Done again by another run, into another file: still the same partition.
    assert commit(lake, [partition(lake, "p", ["a", "b"], run_id="other")]) == 0
    assert n_rows(lake) == 2
    path = manifest.path.removeprefix(lake.data_path)
    assert lake.query("SELECT partition_id, rows, path FROM partitions") == [("p", 2, path)]


def test_a_writer_that_remembers_skips_what_it_or_another_before_it_committed(lake: Lake) -> None:
    p, q, r = (partition(lake, name, [name]) for name in "pqr")
    for run, new in (("first", [1, 0, 1]), ("second", [0, 0, 0])):
        with lease.writing(lake, run, "test") as writer:
            assert [writer.commit(each) for each in ([p], [p], [p, q])] == new
    with lease.writing(lake, "third", "test") as writer:
        assert writer.commit([r]) == 1
        lake.execute("UPDATE partitions SET partition_id = 'other' WHERE partition_id = 'r'")  # as a retry does
        assert writer.commit([replace(q, rows=9), partition(lake, "r", ["again"], run_id="third")]) == 1
    assert lake.query("SELECT partition_id FROM partitions ORDER BY ALL") == [("other",), ("p",), ("q",), ("r",)]


def test_a_commit_that_failed_is_not_taken_for_done(lake: Lake) -> None:
    good = partition(lake, "good", ["a"])
    gone = replace(good, partition_id="gone", path=f"{lake.staging('image_hash', 'run')}/gone.parquet")
    with lease.writing(lake, "run", "test") as writer:
        with pytest.raises(Exception, match=r"gone"):
            writer.commit([good, gone])
        assert (writer.commit([good]), n_rows(lake)) == (1, 1)


def test_tokens_that_are_not_believed_stand_beside_those_that_are_where_there_are_any(lake: Lake) -> None:
    honest, lied = Usage(7, 3, retries=1), Usage(7, 512, unbelieved_prompt_tokens=5, unbelieved_tokens=2**31)
    commit(lake, [replace(partition(lake, name, [name]), usage=used) for name, used in (("a", honest), ("b", lied))])
    told = lake.query("SELECT partition_id, prompt_tokens, tokens, retries FROM usage ORDER BY ALL")
    assert told == [("a", 7, 3, 1), ("b", 7, 512, 0)]
    beyond = "SELECT partition_id, unbelieved_prompt_tokens, unbelieved_tokens FROM unbelieved_usage"
    assert lake.query(beyond) == [("b", 5, 2**31)]
    halves = [lied.of_rows(0, 1, 2), lied.of_rows(1, 2, 2)]
    assert halves[0] + halves[1] == lied and halves[0].unbelieved_tokens == 2**30


def test_the_same_partition_id_in_two_tables_is_two_partitions(lake: Lake) -> None:
    hashes = partition(lake, "p", ["a"])
    empty = replace(hashes, table="image_quality", rows=0, bytes=0, path="")
    assert commit(lake, [hashes, empty]) == 2
    assert lake.query('SELECT "table", rows FROM partitions ORDER BY ALL') == [("image_hash", 1), ("image_quality", 0)]


def test_all_of_a_commit_or_nothing_of_it(lake: Lake) -> None:
    good = partition(lake, "good", ["a"])
    gone = replace(good, partition_id="gone", path=f"{lake.staging('image_hash', 'run')}/gone.parquet")
    with pytest.raises(Exception, match=r"gone"):
        commit(lake, [good, gone])
    assert n_rows(lake) == 0 and lake.query("SELECT * FROM partitions") == []
    assert commit(lake, [good]) == 1


@pytest.mark.parametrize("path", ["/tmp/p.parquet", "main/images/run/p.parquet", "main/image_hash/../p.parquet", ""])
def test_a_file_outside_its_tables_folder_is_refused_with_the_place_to_write_to(lake: Lake, path: str) -> None:
    with pytest.raises(PairmillError, match=r"lake.staging\('image_hash'"):
        commit(lake, [replace(partition(lake, "p", ["a"]), path=path)])


def test_files_without_the_rows_asked_for_are_not_opened(lake: Lake) -> None:
    commit(lake, [partition(lake, name, [f"{name}{n}" for n in range(5)]) for name in "abc"])
    files = lake.query(
        "SELECT data_file FROM ducklake_list_files('lake', 'image_hash') ORDER BY ALL",
    )
    assert len(files) == 3
    for (file,) in files:
        os.rename(file, file + ".away")
    (b,) = (file for (file,) in files if "/b-" in file)
    os.rename(f"{b}.away", b)
    assert lake.query("SELECT count(*) FROM image_hash WHERE shard = 'b'") == [(5,)]
    assert lake.query("SELECT phash FROM image_hash WHERE sha256 = 'b3'") == [(3,)]


def test_a_stream_is_committed_as_it_comes_by_number(lake: Lake) -> None:
    with lease.writing(lake, "run", "test") as writer:
        seen = []

        def results() -> Iterator[Manifest]:
            for number in range(7):
                yield partition(lake, f"p{number}", ["a"])
                seen.append(n_rows(lake))

        new = commit_stream(writer, results(), max_files=3, max_seconds=1000)
    assert seen == [0, 0, 3, 3, 3, 6, 6]
    assert (new, n_rows(lake)) == (7, 7)


def test_a_stream_that_stalls_is_committed_by_the_clock(lake: Lake) -> None:
    with lease.writing(lake, "run", "test") as writer:

        def results() -> Iterator[Manifest]:
            yield partition(lake, "first", ["a"])
            deadline = time.monotonic() + 30
            while n_rows(lake) == 0 and time.monotonic() < deadline:
                time.sleep(0.02)
            assert n_rows(lake) == 1
            yield partition(lake, "second", ["b"])

        assert commit_stream(writer, results(), max_seconds=0.05) == 2


def test_what_was_finished_is_kept_when_the_stream_raises(lake: Lake) -> None:
    with lease.writing(lake, "run", "test") as writer:

        def results() -> Iterator[list[Manifest]]:
            yield [partition(lake, "p", ["a"])]
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            commit_stream(writer, results(), max_seconds=1000)
        assert n_rows(lake) == 1
        assert commit_stream(writer, [partition(lake, "p", ["a"])]) == 0


def test_a_commit_that_fails_on_the_clock_stops_the_stream(lake: Lake) -> None:
    with lease.writing(lake, "run", "test") as writer:

        def results() -> Iterator[Manifest]:
            yield replace(partition(lake, "p", ["a"]), path="elsewhere")
            for number in range(1000):
                time.sleep(0.02)
                yield partition(lake, f"p{number}", ["a"])

        with pytest.raises(PairmillError, match=r"is not in the table's folder"):
            commit_stream(writer, results(), max_seconds=0.01)


def test_a_commit_that_failed_on_the_clock_is_tried_again_at_the_end(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lease.writing(lake, "run", "test") as writer:
        right, failed = writer.commit, []

        def fail_once(manifests: Sequence[Manifest]) -> int:
            if not failed:
                failed.append(True)
                raise PairmillError("busy")
            return right(manifests)

        monkeypatch.setattr(writer, "commit", fail_once)

        def results() -> Iterator[Manifest]:
            yield partition(lake, "p", ["a"])
            while not failed:
                time.sleep(0.01)

        assert commit_stream(writer, results(), max_seconds=0.01) == 1
    assert n_rows(lake) == 1


def test_whoever_lost_the_lease_commits_nothing_more(lake: Lake) -> None:
    with lease.writing(lake, "run", "test") as writer:
        manifest = partition(lake, "p", ["a"])
        lake.metadata.write("UPDATE pairmill_lease SET token = 'other', run_id = 'theirs'")
        with pytest.raises(LeaseLost, match=r"run \(run\) no longer holds the lease: .*run theirs.*took it over"):
            writer.commit([manifest])
        with pytest.raises(LeaseLost):
            writer.begin("step")
    assert n_rows(lake) == 0


WORKER = """
import sys
from pathlib import Path
from pairmill.catalog.write import lease
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.partitions import partition
with create_or_open(sys.argv[1]) as lake, lease.writing(lake, sys.argv[2], "work") as writer:
    number = writer.begin("step")
    todo = {f"p{n}" for n in range(2000)} - {row[0] for row in lake.query("SELECT partition_id FROM partitions")}
    for name in sorted(todo):
        # Every other commit repeats the one before: what a resumed run does with what it cannot know.
        writer.commit([partition(lake, name, [name + "a", name + "b"], number, sys.argv[2])])
        print(name, flush=True)
        writer.commit([partition(lake, name, [name + "a", name + "b"], number, sys.argv[2], "-again")])
"""


@pytest.mark.slow
def test_killed_at_any_moment_nothing_acknowledged_is_lost_and_nothing_doubled(tmp_path: Path) -> None:
    place, chance = tmp_path / "lake", random.Random(7)
    opened_new(place).close()
    acknowledged: set[str] = set()
    for attempt in range(3):
        command = [sys.executable, "-c", WORKER, str(place), f"run{attempt}"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
            assert worker.stdout is not None
            for _ in range(chance.randrange(3, 12)):
                acknowledged.add(worker.stdout.readline().strip())
            time.sleep(chance.uniform(0, 0.05))
            worker.send_signal(signal.SIGKILL)
            # What it printed before it died, it had committed.
            acknowledged |= {line.strip() for line in worker.stdout if line.endswith("\n")}
    with create_or_open(place) as lake, lease.writing(lake, "last", "test"):
        committed = {row[0] for row in lake.query("SELECT partition_id FROM partitions")}
        assert len(acknowledged) >= 9 and acknowledged <= committed
        assert lake.query("SELECT partition_id FROM partitions GROUP BY ALL HAVING count(*) > 1") == []
        assert lake.query("SELECT sha256 FROM image_hash GROUP BY ALL HAVING count(*) > 1") == []
        assert n_rows(lake) == 2 * len(committed)
        numbers = lake.query('SELECT "commit", run_id FROM commits ORDER BY ALL')
        assert numbers == [(n + 1, f"run{n}") for n in range(3)]
