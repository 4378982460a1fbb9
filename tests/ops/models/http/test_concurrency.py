"""How many requests an endpoint has at once, against simulated servers whose best is known."""

import heapq
import random
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pairmill.ops.models.http.endpoint import Concurrency, Endpoint


def simulated(slots: int, seconds: float, answers: int, most: int = 256, seed: int = 1) -> tuple[Concurrency, float]:
    """Simulate a server that answers ``slots`` requests at once, each within about ``seconds``, under full demand.

    Return the limiter, and the median of its limits over the second half of the answers: at a given moment it may be
    trying another limit.
    """
    chance = random.Random(seed)
    fit, now, busy, free = Concurrency(most), 0.0, [], [0.0] * slots
    in_flight = done = 0
    limits = []
    while done < answers:
        while in_flight < fit.limit:
            start = max(now, heapq.heappop(free))
            end = start + seconds * chance.uniform(0.5, 1.5)
            heapq.heappush(free, end)
            heapq.heappush(busy, end)
            in_flight += 1
            fit.began(in_flight)
        now = heapq.heappop(busy)
        in_flight, done = in_flight - 1, done + 1
        fit.answered(now)
        limits.append(fit.limit)
    return fit, statistics.median(limits[answers // 2 :])


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 120), st.floats(0.01, 20), st.integers(0, 1000))
def test_nearly_all_that_a_server_can_do_is_asked_of_it_and_little_more(slots: int, seconds: float, seed: int):
    _, limit = simulated(slots, seconds, 6_000, seed=seed)
    assert 0.85 * slots <= limit <= max(27, 3.4 * slots)  # 0.87 and 3.1 are the worst of 30,000; three steps are 3.4


@pytest.mark.parametrize("most", [1, 3, 50])
def test_there_are_never_more_than_asked_for(most: int):
    fit, _ = simulated(100, 0.1, 2_000, most)
    assert fit.limit == most


def test_a_limit_that_is_never_reached_is_not_raised():
    fit = Concurrency(256)
    for n in range(2_000):
        fit.began(1)
        fit.answered(n * 0.001)
    assert fit.limit == 8


def test_an_endpoint_that_is_busy_gets_less_and_then_more_again():
    fit, _ = simulated(40, 0.1, 3_000)
    before = fit.limit
    for _ in range(3):
        fit.slow_down()
    assert fit.limit <= before / 8 + 1
    now = 0.0
    for _ in range(8_000):
        fit.began(fit.limit)
        now += 0.1 / min(fit.limit, 40)
        fit.answered(now)
    assert fit.limit >= before / 2


def test_a_lost_endpoint_is_tried_with_one_request_after_longer_and_longer_pauses():
    endpoint = Endpoint("http://a", Concurrency(16))
    now, pauses = 100.0, []
    for _ in range(9):
        endpoint.begin()
        endpoint.lose(now)
        endpoint.end()
        assert not endpoint.has_room(endpoint.resumes_at - 0.01) and endpoint.has_room(endpoint.resumes_at)
        endpoint.begin()
        assert not endpoint.has_room(endpoint.resumes_at), "one request to see, not several"
        endpoint.end()
        pauses.append(endpoint.resumes_at - now)
        now = endpoint.resumes_at
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0] and max(pauses) == 30.0
    endpoint.answered(now)
    endpoint.begin()
    assert endpoint.has_room(now)
