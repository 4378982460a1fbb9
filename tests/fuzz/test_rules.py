"""A bounded run of random rules."""

from tests.fuzz.rules import run


def test_a_random_rule_is_refused_in_one_line_or_means_the_same_in_its_normal_form():
    found = run(times=400, seed=3)
    assert found["taken"] >= 15 and found["refused"] >= 200
