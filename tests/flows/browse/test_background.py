"""A value that is made in the background is waited for, and what its maker raises is told."""

import threading

import pytest

from pairmill.flows.browse.background import Background


def test_a_value_is_waited_for_and_a_timeout_of_its_maker_is_an_error_that_the_next_call_tries_again():
    background: Background[int] = Background()
    go_on, tries = threading.Event(), []

    def make() -> int:
        tries.append(go_on.wait(60))
        if len(tries) == 1:
            raise TimeoutError("the storage does not answer")
        return 7

    try:
        assert background.find("a", 1, make, patience=0.01) is None
        go_on.set()
        with pytest.raises(TimeoutError, match="does not answer"):
            background.find("a", 1, make, patience=60)
        assert background.find("a", 1, make, patience=60) == 7
    finally:
        background.close()
