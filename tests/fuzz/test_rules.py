"""Run the fuzzer of rules for a bounded number of rules, and check rules that failed before."""

import pytest

from pairmill.catalog.recipe.predicate import check
from pairmill.catalog.terms.error import BadPredicate
from tests.fuzz.rules import COLUMNS, run


def test_a_random_rule_is_refused_in_one_line_or_means_the_same_in_its_normal_form():
    found = run(times=400, seed=3)
    assert found["taken"] >= 15 and found["refused"] >= 200


@pytest.mark.parametrize("rule", ['"width', "'''\n'", '"a\nb" > 3', "width >\n'x'::INTEGER[]"])
def test_a_rule_with_a_line_end_is_refused_in_one_line(rule: str):
    with pytest.raises(BadPredicate) as told:
        check("r", rule, COLUMNS)
    assert "\n" not in str(told.value)
