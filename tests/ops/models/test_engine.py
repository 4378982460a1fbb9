"""The engine: order, overlap, faults of one caller alone, and nothing left behind."""

import gc
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from pairmill.ops.models.clip.clip_scores import EmbedImages
from pairmill.ops.models.device.engine import BrokenDevice, Engine

SAME: Callable[[Any], Any] = lambda each: each  # noqa: E731


class Made:
    """Halves out of three functions."""

    def __init__(self, prepare: Any = SAME, infer: Any = SAME, fetch: Any = SAME) -> None:
        self.prepare, self.infer, self.fetch = prepare, infer, fetch


@pytest.fixture
def engines() -> Iterator[Callable[[Made, int], Engine]]:
    made: list[Engine] = []

    def make(halves: Made, feeders: int = 3) -> Engine:
        made.append(Engine(halves, feeders))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.mark.parametrize("feeders", [0, 1, 3])
def test_callers_get_their_own_pieces_back_in_order_whatever_each_takes(feeders: int, engines: Any):
    draw = random.Random(feeders)

    def slow(each: Any) -> Any:
        time.sleep(draw.random() / 500)
        return each

    engine = engines(Made(slow, slow, lambda each: (each, "done")), feeders)
    with ThreadPoolExecutor(4) as callers:
        found = list(callers.map(lambda n: engine.run((n, piece) for piece in range(40)), range(4)))
    assert found == [[((n, piece), "done") for piece in range(40)] for n in range(4)]


@pytest.mark.parametrize("half", ["prepare", "infer", "fetch"])
def test_a_fault_is_its_callers_alone(half: str, engines: Any):
    def faulty(each: int) -> int:
        if each == 13:
            raise ValueError("thirteen")
        return each

    engine = engines(Made(**{half: faulty}))
    with ThreadPoolExecutor(2) as callers:
        bad, good = callers.submit(engine.run, range(20)), callers.submit(engine.run, range(20, 60))
        with pytest.raises(ValueError, match="thirteen"):
            bad.result()
        assert good.result() == list(range(20, 60))
    assert engine.run(range(30, 50)) == list(range(30, 50))  # no slot was lost


def test_a_reader_that_fails_gives_its_slots_back(engines: Any):
    def reading() -> Iterator[int]:
        yield from range(5)
        raise OSError("the file is gone")

    engine = engines(Made(), 1)
    for _ in range(5):
        with pytest.raises(OSError, match="gone"):
            engine.run(reading())
    assert engine.run(range(20)) == list(range(20))


def test_batches_are_prepared_while_the_device_works(engines: Any):
    """Each `infer` waits until two more have been prepared, as no loop could ever fulfil."""
    prepared = threading.Semaphore(0)

    def prepare(each: int) -> int:
        prepared.release()
        return each

    def infer(each: int) -> int:
        if each < 18:
            for _ in range(2 if each == 0 else 1):
                assert prepared.acquire(timeout=10)
        return each

    assert engines(Made(prepare, infer), 1).run(range(20)) == list(range(20))


def test_a_batch_is_fetched_after_the_next_one_was_launched(engines: Any):
    said: list[str] = []
    gate = threading.Event()

    def infer(each: int) -> int:
        gate.wait(10)
        said.append(f"launch {each}")
        return each

    engine = engines(Made(lambda each: gate.set() if each == 5 else None, lambda _: None), 1)
    engine.close()
    engine = engines(Made(SAME, infer, lambda each: said.append(f"fetch {each}")), 3)
    threading.Timer(0.2, gate.set).start()  # all that there is room for is ready by then
    engine.run(range(6))
    assert said.index("launch 1") < said.index("fetch 0") < said.index("launch 2") < said.index("fetch 1")


class Stepped(Made):
    """Halves whose batches take as many steps of the device as their numbers say; a step is one of all that run."""

    def __init__(self, fetch: Any = SAME) -> None:
        super().__init__(SAME, self._launch, fetch)
        self.left: dict[int, int] = {}
        self.steps = 0

    def _launch(self, each: int) -> int:
        self.left[each] = each
        return each

    def stepwise(self, each: int) -> Any:
        return SimpleNamespace(has_ended=not self.left[each], advance=self.advance)

    def advance(self) -> None:
        self.steps += 1
        self.left = {each: max(0, steps - 1) for each, steps in self.left.items()}


def test_batches_that_advance_in_steps_run_beside_each_other_and_are_fetched_as_they_end(engines: Any):
    order = []

    def fetch(each: int) -> int:
        if each == 13:
            raise ValueError("thirteen")
        order.append((each, halves.left[each]))
        return each

    halves = Stepped(fetch)
    assert engines(halves, 2).run([30, 2, 9, 1, 4, 40, 7]) == [30, 2, 9, 1, 4, 40, 7]
    assert halves.steps < 30 + 40 and order == [(each, 0) for each in (30, 2, 9, 1, 4, 40, 7)]
    with pytest.raises(ValueError, match="thirteen"):
        engines(halves, 2).run([3, 13, 5])


def test_what_has_ended_is_fetched_without_a_step_while_prepared_batches_wait(engines: Any):
    """Each launch runs all earlier batches to their end, as one that waits for a slot does."""
    begun, fetched, seen = threading.Semaphore(0), [], []

    def prepare(each: int) -> int:
        begun.release()
        return each

    def launch(each: int) -> int:
        if each <= 17:  # wait until the feeder has begun the piece after the next, so that the next is prepared
            for _ in range(3 if each == 1 else 1):
                assert begun.acquire(timeout=10)
            seen.append((len(fetched), halves.steps))
        halves.left = dict.fromkeys(halves.left, 0) | {each: each}
        return each

    halves = Stepped(lambda each: fetched.append(each))
    halves.prepare, halves.infer = prepare, launch
    engines(halves, 1).run(range(1, 21))
    assert seen == [(max(0, n - 2), 0) for n in range(1, 18)] and fetched == list(range(1, 21))


def test_an_error_in_a_step_is_told_by_the_batchs_fetch(engines: Any):
    def fail(*_: int) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered")

    halves = Stepped(fail)
    halves.advance = fail
    with pytest.raises(BrokenDevice, match="illegal memory"):
        engines(halves, 2).run(range(1, 6))


def test_no_more_is_read_than_there_is_room_for(engines: Any):
    read: list[int] = []
    hold = threading.Event()

    def reading() -> Iterator[int]:
        for each in range(100):
            read.append(each)
            yield each

    engine = engines(Made(infer=lambda each: hold.wait(10) and each), 2)
    with ThreadPoolExecutor(1) as caller:
        running = caller.submit(engine.run, reading())
        time.sleep(0.3)
        held = len(read)
        hold.set()
        assert running.result() == list(range(100))
    assert held <= 2 * 2 + 2 + 1


def test_nothing_of_a_batch_stays_on_the_device_once_it_is_fetched(engines: Any):
    class OnDevice:
        pass

    alive: weakref.WeakSet[OnDevice] = weakref.WeakSet()
    most: list[int] = []

    def infer(_: int) -> OnDevice:
        alive.add(made := OnDevice())
        return made

    def fetch(_: OnDevice) -> int:
        gc.collect()
        most.append(len(alive))
        return 0

    gc.freeze()  # what torch and the rest have made so far takes 0.6 s to look through, each time
    try:
        engines(Made(infer=infer, fetch=fetch), 2).run(range(50))
    finally:
        gc.unfreeze()
    assert max(most) <= 3


def test_prepared_batches_take_no_more_bytes_than_they_may(engines: Any):
    """Of 1 MB each, 22 pieces could be ahead of a slow device; 5 MB are allowed."""
    lock, seen = threading.Lock(), {"now": 0, "most": 0}

    def prepare(_: int) -> np.ndarray:
        with lock:
            seen["now"] += 1
            seen["most"] = max(seen["most"], seen["now"])
        return np.zeros(1_000_000, np.uint8)

    def infer(_: np.ndarray) -> int:
        time.sleep(0.002)
        with lock:
            seen["now"] -= 1
        return 1

    engine = Engine(Made(prepare, infer), 10, most_bytes=5_000_000)
    assert engine.run(range(60)) == [1] * 60
    assert 3 <= seen["most"] <= 6  # one is counted as begun a moment before the last is counted as launched
    engine.close()
    one = Engine(Made(prepare, infer), 3, most_bytes=10)
    assert one.run(range(5)) == [1] * 5  # each is larger than all that is allowed
    one.close()


def test_a_piece_that_fails_gives_its_bytes_back(engines: Any):
    def faulty(each: int) -> np.ndarray:
        if each % 2:
            raise ValueError(str(each))
        return np.zeros(600, np.uint8)

    engine = Engine(Made(faulty, lambda each: each.nbytes), 2, most_bytes=1_000)
    for each in range(1, 20, 2):
        with pytest.raises(ValueError):
            engine.run([each - 1, each])
    assert engine.run([0, 2, 4]) == [600] * 3
    engine.close()


@pytest.mark.parametrize("feeders", [0, 2])
def test_a_broken_device_is_told_to_all_with_its_cause_and_memory_is_no_break(feeders: int, engines: Any):
    def broken(each: int) -> int:
        if each == 3:
            raise RuntimeError("CUDA error: device-side assert triggered")
        if each == 30:
            raise RuntimeError("CUDA error: out of memory")
        return each

    engine = engines(Made(infer=broken), feeders)
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.run([30])
    with pytest.raises(BrokenDevice, match="device-side assert") as told:
        engine.run(range(10))
    assert isinstance(told.value.__cause__, RuntimeError)
    if feeders:
        with pytest.raises(BrokenDevice):
            engine.run([100])


def test_closing_ends_all_threads_and_lets_what_was_begun_end(engines: Any):
    before = threading.active_count()
    begun, hold = threading.Event(), threading.Event()

    def prepare(each: int) -> int:
        begun.set()
        hold.wait(10)
        return each

    engine = Engine(Made(prepare), 2)
    with ThreadPoolExecutor(2) as callers:
        running = callers.submit(engine.run, range(3))
        begun.wait(10)
        closing = callers.submit(engine.close)
        hold.set()
        assert running.result(10) == [0, 1, 2]
        closing.result(10)
    with pytest.raises(RuntimeError, match="closed"):
        engine.run([1])
    until = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < until:
        time.sleep(0.01)
    assert threading.active_count() <= before  # those of other tests may end meanwhile


def test_pictures_get_the_vectors_that_a_plain_call_gives_them(engines: Any):
    draw = np.random.default_rng(3)
    shapes = [(40, 60), (64, 64), (90, 30), (50, 50)]
    batches = [
        {"pixels": [draw.integers(0, 255, (*shapes[(n + k) % 4], 3), np.uint8) for k in range(5)]} for n in range(6)
    ]
    folder = Path(__file__).resolve().parents[3] / "infra" / "demo" / "models" / "clip"
    op = EmbedImages(f"open_clip:local-dir:{folder}")
    plain = [op(batch)["image_vector"] for batch in batches]
    for feeders in (0, 3):
        found = engines(Made(op.prepare, op.infer, op.fetch), feeders).run(batches)
        for seen, expected in zip(found, plain, strict=True):
            np.testing.assert_array_equal(seen["image_vector"], expected)
