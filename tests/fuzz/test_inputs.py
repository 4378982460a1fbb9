"""Run the fuzzer of readers for a bounded time, and check that its good inputs are good."""

import pytest

from tests.fuzz.inputs import check, inputs, run


@pytest.mark.parametrize("name", sorted(inputs()))
def test_every_good_input_gives_rows(tmp_path, name):
    assert check(tmp_path, name, inputs()[name]) >= 1


@pytest.mark.slow
def test_mutated_inputs_end_as_rows_or_faults_and_never_raise_hang_or_leave_the_source():
    total = run(seconds=8, seed=7, at_most=600)
    assert total["inputs"] >= 100
    assert total["rows"] >= total["inputs"]
