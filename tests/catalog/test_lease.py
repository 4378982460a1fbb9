import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psutil
import pytest

from pairmill.catalog.lake import lease_row, schema
from pairmill.catalog.lake.host import host_since_boot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import LeaseHeld, LeaseLost
from pairmill.catalog.write import lease
from tests.worlds.partitions import partition
from tests.worlds.shared import opened_new

FAR = "far pid:[1] another-boot"


def put_holder(lake: Lake, host: str, pid: int, started: float, clock_ahead: float = 0.0) -> None:
    """Hold the lease by a row; ``clock_ahead`` seconds is the holder's clock before this machine's."""
    now = datetime.now(UTC) + timedelta(seconds=clock_ahead)
    times = now.isoformat(), (now + timedelta(seconds=90)).isoformat()
    values = ("token", "far:1", host, pid, started, "theirs", "captions", *times)
    columns = "slot, token, holder, host, pid, started, run_id, purpose, heartbeat, expires"
    lake.metadata.write(f"INSERT INTO pairmill_lease ({columns}) VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)


@contextmanager
def beating(lake: Lake, clock_ahead: float) -> Iterator[None]:
    """Renew the row every 0.02 s meanwhile, as a live holder does, by its own clock."""
    stop = threading.Event()

    def beat() -> None:
        while not stop.wait(0.02):
            now = datetime.now(UTC) + timedelta(seconds=clock_ahead)
            lake.metadata.write("UPDATE pairmill_lease SET heartbeat = ?, expires = ?", (now.isoformat(),) * 2)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_a_second_writer_is_told_who_writes_and_what_to_do(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as first, create_or_open(tmp_path / "lake") as second:
        with lease.writing(first, "run1", "curate"):
            assert second.query("SELECT run_id, purpose FROM lease") == [("run1", "curate")]
            told = pytest.raises(
                LeaseHeld,
                match=r"run run1, 'curate', since .* by its clock. Wait until it ends, or stop it \(`kill \d+`\)",
            )
            with told, lease.writing(second, "run2", "takedown"):
                pass
        with lease.writing(second, "run2", "takedown") as writer:
            assert writer.begin("step") == 1
        assert second.query("SELECT * FROM lease") == []


def test_the_lease_is_released_when_the_body_raises(lake: Lake) -> None:
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), lease.writing(lake, "run", "test"):
            raise ZeroDivisionError


def test_a_writer_may_wait_for_the_one_before_it(tmp_path: Path) -> None:
    with opened_new(tmp_path / "lake") as first, create_or_open(tmp_path / "lake") as second:
        taken, waited = threading.Event(), threading.Event()

        def work() -> None:
            with lease.writing(first, "run1", "curate"):
                taken.set()
                waited.wait(30)

        thread = threading.Thread(target=work)
        thread.start()
        taken.wait(30)
        threading.Timer(0.2, waited.set).start()
        with lease.writing(second, "run2", "export", wait_seconds=60) as writer:
            assert waited.is_set() and writer.begin("step") == 1
        thread.join()


def test_commit_numbers_rise_over_steps_and_runs(lake: Lake) -> None:
    numbers = []
    for run in ("a", "b"):
        with lease.writing(lake, run, "test") as writer:
            numbers += [writer.begin("score"), writer.begin("cluster")]
            assert len(lake.query("SELECT * FROM commits")) == len(numbers) - 2, "recorded with what is committed"
            writer.commit([partition(lake, f"p{run}", ["x"], numbers[-1])])
            writer.begin("nothing comes of it")
    assert numbers == [1, 2, 3, 4]
    assert lake.query('SELECT "commit", run_id, step FROM commits ORDER BY ALL')[2:] == [
        (3, "b", "score"),
        (4, "b", "cluster"),
    ]


@pytest.mark.parametrize("clock_ahead", [-600.0, 0.0, 600.0])
def test_a_live_holder_of_another_machine_keeps_its_lease_whatever_its_clock_says(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, clock_ahead: float
) -> None:
    monkeypatch.setattr(lease_row, "EXPIRY_SECONDS", 5.0)
    put_holder(lake, FAR, 1, 0.0, clock_ahead)
    told = pytest.raises(LeaseHeld, match=r"far:1, run theirs, 'captions', since 1970.* \(`kill 1` on far\)")
    with beating(lake, clock_ahead), told, lease.writing(lake, "run", "test"):
        pass


@pytest.mark.parametrize("clock_ahead", [-600.0, 0.0, 600.0])
def test_a_holder_of_another_machine_that_is_silent_is_replaced_whatever_its_clock_said(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, clock_ahead: float
) -> None:
    monkeypatch.setattr(lease_row, "EXPIRY_SECONDS", 0.2)
    put_holder(lake, FAR, 1, 0.0, clock_ahead)
    with lease.writing(lake, "run", "test") as writer:
        assert writer.begin("step") == 1


def test_a_live_process_of_this_machine_is_refused_at_once_though_its_clock_was_set_back(lake: Lake) -> None:
    process = psutil.Process()
    put_holder(lake, host_since_boot(), process.pid, process.create_time(), -600.0)
    with pytest.raises(LeaseHeld, match="far:1"), lease.writing(lake, "run", "test"):
        pass


def test_a_dead_process_of_this_machine_is_replaced_at_once(lake: Lake) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        pass
    put_holder(lake, host_since_boot(), child.pid, 0.0)
    with lease.writing(lake, "run", "test"):
        pass
    # The number was given to another process since: this very one, which started at another time.
    put_holder(lake, host_since_boot(), os.getpid(), 0.0)
    with lease.writing(lake, "run", "test"):
        pass


def test_the_heartbeat_changes_the_row_without_a_snapshot(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_row, "BEAT_SECONDS", 0.05)
    with lease.writing(lake, "run", "test") as writer:
        first = lease_row.holder_of(lake.metadata)
        for _ in range(500):
            now = lease_row.holder_of(lake.metadata)
            if first and now and now.heartbeat > first.heartbeat:
                break
        else:
            pytest.fail("no beat")
        snapshots = lake.query("SELECT count(*) FROM ducklake_snapshots('lake')")
        writer.check()
        assert lake.query("SELECT count(*) FROM ducklake_snapshots('lake')") == snapshots


def test_a_transaction_that_outlasts_heartbeats_commits_at_its_first_try(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On SQLite a heartbeat's commit would make it conflict, each time anew, until the lake gives up after 60 s."""
    monkeypatch.setattr(lease_row, "BEAT_SECONDS", 0.01)
    tries = 0

    def body() -> None:
        nonlocal tries
        tries += 1
        lake.query("SELECT count(*) FROM bans")
        time.sleep(0.3)
        lake.execute("INSERT INTO bans BY NAME SELECT 'a' AS sha256")

    with lease.writing(lake, "run", "test"):
        lake.retrying(body)
        first = lease_row.holder_of(lake.metadata)
        time.sleep(0.3)
        now = lease_row.holder_of(lake.metadata)
    assert tries == 1
    assert first and now and now.heartbeat > first.heartbeat  # and they go on behind it


def test_what_a_holder_waits_for_is_read_beside_it_until_it_works_again_or_the_lease_is_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(reader: Lake) -> str | None:
        held = lease_row.holder_of(reader.metadata)
        return held and held.waiting

    with opened_new(tmp_path / "lake") as first, create_or_open(tmp_path / "lake") as second:
        with lease.writing(first, "run1", "curate") as writer:
            snapshots = first.query("SELECT count(*) FROM ducklake_snapshots('lake')")
            writer.show_waiting("captions: waiting for a node")
            assert said(second) == "captions: waiting for a node"
            writer.show_waiting("")
            assert said(second) == ""
            writer.show_waiting("captions: waiting for another")
            assert first.query("SELECT count(*) FROM ducklake_snapshots('lake')") == snapshots
            monkeypatch.setattr(lease_row, "EXPIRY_SECONDS", 0.2)
            second.metadata.write("UPDATE pairmill_lease SET host = ?", (FAR,))
            with lease.writing(second, "run2", "curate"):
                assert said(second) == ""
                writer.show_waiting("no longer the holder")
                assert said(second) == ""
        assert said(second) is None


def test_the_heartbeat_goes_on_while_it_is_said_what_is_waited_for(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_row, "BEAT_SECONDS", 0.02)
    with lease.writing(lake, "run", "test") as writer:
        first, beats = lease_row.holder_of(lake.metadata), set()
        for n in range(5000):
            writer.show_waiting(f"waiting {n}")
            now = lease_row.holder_of(lake.metadata)
            assert first and now and (now.token, now.waiting) == (first.token, f"waiting {n}")
            beats.add(now.heartbeat)
            if len(beats) > 5:
                break
        assert len(beats) > 5


def test_a_writer_that_stood_still_while_another_took_over_writes_nothing_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever it was about to write, datasets included, and though nobody else touched that table."""
    row = "INSERT INTO bans VALUES ('a', 'test', now())"
    with opened_new(tmp_path / "lake") as first, create_or_open(tmp_path / "lake") as second:
        with lease.writing(first, "run1", "curate"):
            first.retrying(lambda: first.execute(row))
            monkeypatch.setattr(lease_row, "EXPIRY_SECONDS", 0.2)
            second.metadata.write("UPDATE pairmill_lease SET host = ?", (FAR,))
            with lease.writing(second, "run2", "curate"):
                with pytest.raises(LeaseLost, match=r"this run \(run1\) no longer holds the lease.*run2"):
                    first.retrying(lambda: first.execute(row))
                second.retrying(lambda: second.execute(row))
        assert second.query("SELECT count(*) FROM bans") == [(2,)]
        first.retrying(lambda: first.execute(row))  # without a lease nobody asks for one
        assert second.query("SELECT count(*) FROM bans") == [(3,)]


RACER = """
import sys
from pairmill.catalog.write import lease
from pairmill.catalog.terms.error import LeaseHeld
from pairmill.catalog.lake.opening import create_or_open
with create_or_open(sys.argv[1]) as lake:
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        with lease.writing(lake, sys.argv[2], "race"):
            print("won", flush=True)
            sys.stdin.readline()
    except LeaseHeld:
        print("lost", flush=True)
"""


def test_of_many_processes_that_race_for_the_lease_one_wins(tmp_path: Path) -> None:
    opened_new(tmp_path / "lake").close()
    command = [sys.executable, "-c", RACER, str(tmp_path / "lake")]
    pipe = subprocess.PIPE
    racers = [subprocess.Popen([*command, f"run{n}"], stdin=pipe, stdout=pipe, text=True) for n in range(3)]
    for racer in racers:
        assert racer.stdout is not None and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    answers = [racer.stdout.readline().strip() for racer in racers if racer.stdout]
    for racer in racers:
        racer.communicate("go\n", timeout=60)
    assert sorted(answers) == ["lost"] * 2 + ["won"]


def test_processes_that_create_a_lake_together_all_get_it(tmp_path: Path) -> None:
    script = "import sys; from pairmill.catalog.lake.opening import create_or_open; create_or_open(sys.argv[1]).close()"
    command = [sys.executable, "-c", script, str(tmp_path / "lake")]
    creators = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(3)]
    ends = [(creator.communicate(timeout=100)[1], creator.returncode) for creator in creators]
    assert ends == [("", 0)] * 3
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        assert lake.query("SELECT version, count(*) FROM schema_version GROUP BY ALL ORDER BY ALL") == [
            (number, 1) for number in range(1, schema.NEWEST + 1)
        ]
