"""The batch size: the fastest one is found, cache_on_machine, and looked for by one process at a time."""

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pairmill.catalog.terms.whole_file import cache_on_machine as remembered_in
from pairmill.ops.models.device.batch_size import _is_size, fastest


def cache_on_machine(key: tuple[str, ...], find: Callable[[], int]) -> int:
    return remembered_in("batch_sizes.json", key, find, _is_size)


class Card:
    """A device of a known curve: a batch takes ``fixed`` seconds and ``each`` a row; ``room`` rows fit."""

    def __init__(self, fixed: float, each: float, room: int) -> None:
        self.fixed, self.each, self.room = fixed, each, room
        self.runs: list[int] = []

    def seconds_of(self, rows: int) -> float:
        self.runs.append(rows)
        if rows > self.room:
            raise MemoryError(rows)
        return self.fixed + self.each * rows


def is_full(error: Exception) -> bool:
    return isinstance(error, MemoryError)


def test_it_grows_while_a_larger_batch_is_faster_and_stops_where_it_is_not():
    card = Card(0.02, 0.0002, 10**9)  # at 8 rows 370 a second; at 1,024 4,550; twice that wins some 4 %
    found = fastest(card.seconds_of, 8, is_full)
    assert found == 1024 and card.runs == [8, 16, 32, 64, 128, 256, 512, 1024, 2048]


def test_it_is_the_largest_that_fits_where_memory_runs_out_first():
    assert fastest(Card(0.02, 0.0, 100).seconds_of, 8, is_full) == 64
    assert fastest(Card(0.02, 0.0, 4).seconds_of, 8, is_full) == 8  # the batch itself is halved when it is used


def test_another_error_is_raised():
    def broken(rows: int) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fastest(broken, 8, is_full)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "pairmill" / "batch_sizes.json"


def test_what_was_found_is_known_by_model_and_device_and_found_once_by_many(cache: Path):
    looked: list[str] = []

    def find() -> int:
        looked.append("looked")
        time.sleep(0.05)
        return 96

    with ThreadPoolExecutor(4) as several:
        assert list(several.map(lambda _: cache_on_machine(("hf:a", "bf16", "H200"), find), range(8))) == [96] * 8
    assert len(looked) == 1
    assert cache_on_machine(("hf:a", "bf16", "A100"), lambda: 32) == 32
    assert json.loads(cache.read_text()) == {"hf:a bf16 H200": 96, "hf:a bf16 A100": 32}


@pytest.mark.parametrize("text", ["{", "[]", '{"hf:a": "many"}', '{"hf:a": -1}'])
def test_a_damaged_file_is_nothing_known_and_written_anew(text: str, cache: Path):
    cache.parent.mkdir()
    cache.write_text(text)
    assert cache_on_machine(("hf:a",), lambda: 16) == 16
    assert json.loads(cache.read_text()) == {"hf:a": 16}


def test_without_a_folder_to_write_it_is_found_anew(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/nowhere")
    assert cache_on_machine(("hf:a",), lambda: 16) == 16
