"""Faults hit a run and the next ends in the same dataset; readers beside writers; two nights of a soak. Short forms."""

from pathlib import Path

import pytest

from infra.endure import chaos, soak
from infra.endure.bad_proxy import BUSY, BadProxy
from infra.endure.readers_and_writers import beside_each_other


@pytest.mark.timeout(1800)  # a guard: 600 s were too few on two busy cores at half of their speed
@pytest.mark.slow  # a run that is interrupted, one that goes on; `make chaos` has 44, test_histories kills
def test_what_a_fault_interrupts_the_next_run_ends_as_it_would(tmp_path: Path):
    trial = chaos.Chaos(tmp_path, documents=3, seed=4)
    trial.interrupt("kill -9 of Postgres")
    line = trial.table["kill -9 of Postgres"]
    assert (line.times, line.survived, line.rows_lost) == (1, 1, 0), line


@pytest.mark.slow  # five processes on each of two databases
def test_readers_and_writers_beside_each_other_lose_nothing_and_meet_no_error(tmp_path: Path):
    for row in beside_each_other(tmp_path, 4):
        assert row["errors"] == row["lost"] == 0 < row["reads"], row
        assert row["turns"] >= 2, row


@pytest.mark.timeout(1800)
@pytest.mark.full  # 120 CPU s; in CI test_histories has runs, kills and maintenance, and a model of the lake
def test_two_nights_of_a_soak_end_with_every_item_accounted_for(tmp_path: Path):
    passed, wrong = soak.soak(tmp_path, 2, documents=4, seed=3)
    assert len(passed) == 2
    assert not [line for line in wrong if line.partition(":")[0] not in soak.BOUNDED], wrong


@pytest.mark.parametrize(("trouble", "answer"), [("503", BUSY), ("reset", None)])
def test_the_proxy_before_s3_makes_the_trouble_that_it_is_told_to(trouble: str, answer: bytes | None):
    import socket
    import threading

    behind = socket.create_server(("127.0.0.1", 0))

    def answered() -> None:
        while True:
            client, _ = behind.accept()
            client.sendall(client.recv(100))

    threading.Thread(target=answered, daemon=True).start()

    with BadProxy(*behind.getsockname()) as proxy:
        port = int(proxy.url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(b"hello")
            assert client.recv(100) == b"hello"
            proxy.trouble = trouble
            client.sendall(b"again")
            if answer:
                assert client.recv(100) == answer
            else:
                with pytest.raises(ConnectionResetError):
                    client.recv(100)
