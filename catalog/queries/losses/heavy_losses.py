"""Explain with numbers why a small lake keeps few of its pictures or none, and name the remedy."""

import shlex

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset, FunnelStep, funnel
from pairmill.catalog.recipe.plan import Plan

# A cap is chosen for millions of pictures: with more than SMALL the recipe's author knows that it drops most.
SMALL = 100_000
MOST = 0.3


def heavy_losses(lake: Lake, plan: Plan, dataset: Dataset) -> list[str]:
    """Return notes on balance that drops more than MOST of a small lake, and on sentences of which none is left.

    Reads the tables of the connection's last cut.
    """
    steps = funnel(lake, dataset)
    is_lost = not dataset.n_pairs and plan.recipe.association.at_least
    found = [_lost_to_cap(lake, plan, steps), _no_sentence(lake, plan, steps) if is_lost else ""]
    return [note for note in found if note]


def _lost_to_cap(lake: Lake, plan: Plan, steps: list[FunnelStep]) -> str:
    """Return the note on a cap that drops more than MOST of at most SMALL pictures; '' otherwise."""
    step = next((each for each in steps if (each.kind, each.rule) == ("image", "balance")), None)
    cap = plan.recipe.balance.cap
    if cap is None or step is None or step.n_in > SMALL or step.n_dropped <= MOST * step.n_in:
        return ""
    clusters = lake.query("SELECT count(DISTINCT cluster) FROM cut_capped WHERE cluster IS NOT NULL")[0][0]
    return (
        f"{clusters:,} cluster{'s' * (clusters > 1)}, cap {cap:,}: {step.n_dropped:,} of {step.n_in:,} pictures fall "
        "to balance. Keep all with --set balance.cap=none, or use the recipe folder."
    )


def _no_sentence(lake: Lake, plan: Plan, steps: list[FunnelStep]) -> str:
    """Return the note on a lake whose pictures have no sentence; '' where a sentence is left, or there is no picture.

    Captions of a list of addresses count as sentences.
    """
    pictures = [each for each in steps if each.kind == "image"]
    sentences = [each for each in steps if each.kind == "sentence"]
    if not pictures or not pictures[0].n_in or not sentences or sentences[-1].n_in - sentences[-1].n_dropped:
        return ""
    recaption = f"describe the pictures: pairmill recaption --lake {shlex.quote(lake.uri)} --to captions"
    if not sentences[0].n_in:
        return (
            f"no sentences in these sources: nothing can be associated with the {pictures[0].n_in:,} pictures. Add "
            f"pages or captions, or {recaption}"
        )
    rules = {check.name for check in plan.sentence_checks}
    by_rule = sorted((each for each in sentences if each.n_dropped and each.rule in rules), key=lambda s: -s.n_dropped)
    n = sum(each.n_dropped for each in by_rule)
    shares = ", ".join(f"{each.n_dropped:,} by '{each.rule}'" for each in by_rule)
    return (
        f"none of {n:,} different sentences is left: {shares}. Change sentences.{by_rule[0].rule}.keep, or {recaption}"
    )
