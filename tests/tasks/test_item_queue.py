"""The queue of a stage on Ray: what happens to the items of actors that are lost, or whose machine is left out."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest

from pairmill.tasks.run.cluster import item_queue
from pairmill.tasks.run.cluster.item_queue import ItemQueue

ITEMS = {name: name.encode() for name in ("a", "b", "c")}


def taken(queue: ItemQueue, numbers: range) -> list[bytes | None]:
    return sorted((queue.take(at) for at in numbers), key=str)


def holding() -> ItemQueue:
    """A queue whose actor `small` has `a` and may have `b` waiting, and whose actor `large` has `c`."""
    queue = ItemQueue()
    queue.put(ITEMS)
    taken(queue, range(3))
    for minder, name in (("small", "a"), ("large", "c")):
        queue.hear(minder, 0, "")
        assert queue.begin(name, minder) == 1
    return queue


def test_a_machine_that_is_left_out_hands_back_its_items_and_none_is_blamed():
    queue = holding()
    queue.leave_out("small", "node", "10.0.0.3", b"why")
    assert taken(queue, range(3, 5)) == [b"a", b"b"]
    assert queue.begin("a", "large") == 1  # the start on the machine that is left out does not count
    assert queue.begin("b", "large") == 1 and queue.begin("c", "large") == 0
    assert queue.left_out() == {"node": ("10.0.0.3", b"why")}


def test_items_that_ray_handed_to_a_left_out_actor_until_it_ended_are_queued_again(monkeypatch: pytest.MonkeyPatch):
    queue = holding()
    queue.leave_out("small", "node", "10.0.0.3", b"why")
    assert taken(queue, range(3, 5)) == [b"a", b"b"]  # and Ray hands them to the actor that is about to end
    monkeypatch.setattr(item_queue, "SILENT_SECONDS", 0.0)
    assert queue.requeue_lost() == 1  # `large`: who is left out is not lost
    assert taken(queue, range(5, 8)) == [b"a", b"b", b"c"]


def test_a_lost_actors_items_are_queued_again_and_each_start_counts(monkeypatch: pytest.MonkeyPatch):
    queue = holding()
    monkeypatch.setattr(item_queue, "SILENT_SECONDS", 0.0)
    assert queue.requeue_lost() == 2
    assert taken(queue, range(3, 6)) == [b"a", b"b", b"c"]
    assert queue.begin("a", "third") == 2


def test_a_second_reader_gets_what_the_first_one_got_and_goes_on():
    queue = holding()
    queue.put({"d": b"d", "e": b"e"})
    queue.finish("a")
    assert [queue.take(at) for at in range(5)] == [item_queue.FINISHED, b"b", b"c", b"d", b"e"]
    name, *_ = pickle.loads(item_queue.FINISHED)
    assert queue.begin(name, "large") == 0


def test_a_queue_that_is_closed_lets_every_reader_go():
    queue = ItemQueue()
    with ThreadPoolExecutor(2) as readers:
        waiting = [readers.submit(queue.take, 0) for _ in range(2)]
        queue.close()
        assert [each.result(timeout=60) for each in waiting] == [None, None]
