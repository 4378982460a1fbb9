"""The sentence at the end of a run names what limited the yield, with the remedy, or that nothing did."""

import pytest

from pairmill.catalog.pending.quarantine import FaultCount
from pairmill.catalog.queries.datasets import FunnelStep
from pairmill.catalog.queries.losses.rule_losses import _REMEDIES, yield_limit
from pairmill.catalog.recipe.parts import RESERVED

ORDER = ("readable", "short_side", "duplicate", "no_text", "balance")


def funnel(**dropped: int) -> list[FunnelStep]:
    """The funnel of 1,000 pictures of which each rule drops so many."""
    left, steps = 1000, [FunnelStep("sentence", "repeated", 5000, 4900)]
    for rule in ORDER:
        steps.append(FunnelStep("image", rule, left, dropped.get(rule, 0)))
        left -= dropped.get(rule, 0)
    return steps


def fault(reason: str, items: int) -> FaultCount:
    return FaultCount(reason, "fetch", "list.csv", items, "a", "")


@pytest.mark.parametrize(
    ("dropped", "faults", "said"),
    [
        ({"short_side": 400, "duplicate": 100}, [], "short_side: 400 of 1,000 pictures; `pairmill browse` shows them"),
        ({"short_side": 100, "duplicate": 400}, [], "duplicate: 400 of 1,000 pictures; they are near copies"),
        ({"no_text": 700}, [fault("timeout", 200)], "no_text: 700 of 1,000 pictures; no sentence is near enough"),
        ({"balance": 201}, [], "balance: 201 of 1,000 pictures; their clusters are full: --set balance.cap=none"),
        ({"readable": 500}, [], "readable: 500 of 1,000 pictures; they cannot be decoded"),
        (
            {"duplicate": 300},
            [fault("timeout", 90), fault("blocked_address", 260)],
            "failures: 350 items beside 1,000 pictures, most of them by blocked_address",
        ),
    ],
)
def test_the_largest_loss_is_named_with_its_remedy(dropped: dict[str, int], faults: list[FaultCount], said: str):
    assert yield_limit(funnel(**dropped), faults).startswith(f"limited most by {said}")


def test_each_step_that_is_no_rule_has_a_remedy_of_its_own():
    """The remedy of rules, `--set images.NAME.keep`, would be wrong for them."""
    assert RESERVED - {"same_text"} <= {*_REMEDIES}  # which drops sentences


def test_small_losses_limit_nothing():
    assert yield_limit(funnel(duplicate=199, no_text=100), [fault("timeout", 9)]) == (
        "nothing limited it: 701 of 1,000 pictures are in."
    )


def test_a_version_without_a_picture_has_no_sentence_on_its_yield():
    assert yield_limit([], []) == ""
