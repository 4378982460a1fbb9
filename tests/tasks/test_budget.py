"""What a run may spend: portions that the rest has room for, by what each step's texts cost so far."""

import pytest

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest, Usage
from pairmill.tasks.run.place.placement import Prices
from pairmill.tasks.run.place.run_limits import Budget

PRICES = Prices(prompt=1.0, answer=4.0)


def items(*rows: int) -> list[WorkItem]:
    return [WorkItem(f"shard-{n}", tuple(f"key {n} {m}" for m in range(many))) for n, many in enumerate(rows)]


def spend(budget: Budget, step: str, portion: list[WorkItem], tokens: int) -> None:
    """Have every row of a portion read and make so many tokens."""
    for item in portion:
        rows = len(item.keys)
        usage = Usage(prompt_tokens=tokens * rows, tokens=tokens * rows)
        budget.priced(step, [Manifest("captions", "", "", "", rows, 0, 1.0, "", 1, "run", usage=usage)], PRICES)


def test_the_first_item_of_each_step_goes_alone_however_cheap_another_steps_were():
    budget = Budget(most=1000.0)
    seen = {"captions": [], "fuse": []}
    for step, tokens in (("captions", 10), ("fuse", 1_000_000)):
        for portion in budget.affordable(step, items(*[10] * 15), PRICES):
            seen[step].append(len(portion))
            spend(budget, step, list(portion), tokens)
            if step == "fuse" and len(seen[step]) == 2:
                break
    assert seen["captions"] == [1, 14]
    assert seen["fuse"] == [1, 14], "50 an item, of 1,000"


def test_a_portion_is_as_large_as_the_rest_has_room_for_at_the_dearest_items_rate():
    budget, sizes = Budget(most=100.0), []
    with pytest.raises(PairmillError, match=r"stopped at a commit: texts cost 95\.0000 of the 100"):
        for portion in budget.affordable("captions", items(*[1] * 40), PRICES):
            sizes.append(len(portion))
            spend(budget, "captions", list(portion), 1_000_000 if budget.spent else 2_000_000)
    assert sizes == [1, 9, 4, 2, 1, 1]
    assert budget.spent <= 100


def test_a_server_that_tells_no_tokens_cannot_be_kept_within_a_cap():
    budget = Budget(most=1.0)
    portions = budget.affordable("captions", items(10, 10), PRICES)
    spend(budget, "captions", list(next(portions)), 0)
    with pytest.raises(PairmillError, match="reports no token usage"):
        next(portions)


def test_what_a_server_reports_and_is_not_believed_is_counted_and_not_priced():
    budget = Budget(most=1.0)
    usage = Usage(tokens=512, unbelieved_prompt_tokens=7, unbelieved_tokens=2**31)
    budget.priced("captions", [Manifest("captions", "", "", "", 1, 0, 1.0, "", 1, "run", usage=usage)], PRICES)
    assert budget.spent == 512 * 4.0 / 1e6 and budget.unbelieved == {"captions": 2**31 + 7}
    budget.spent = 1.0
    with pytest.raises(PairmillError, match="2,147,483,655 tokens that their server reports"):
        next(budget.affordable("captions", items(1), PRICES))


def test_without_a_cap_or_prices_all_goes_at_once():
    for budget, prices in ((Budget(), PRICES), (Budget(most=1.0), Prices())):
        assert [len(portion) for portion in budget.affordable("captions", items(1, 1, 1), prices)] == [3]
