"""Select the sentences that pass a recipe's rules, and the keeper of each duplicate group: the one that is shown."""

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import passed
from pairmill.catalog.recipe.plan import Plan

KEEPERS_AT_ONCE = 2_000_000
NOBODY = 2**32 - 1


def with_keepers(plan: Plan) -> str:
    """Return SQL for (sentence, keeper): each sentence and the one shown for it, itself or its group's keeper.

    No row for a sentence if no member of its group passes the rules and occurs in a current document.
    """
    members = f"SELECT *, {_survives(plan)} AS survives FROM facts.sentences WHERE duplicates IS NOT NULL"
    first = "arg_min(sentence, member) FILTER (survives) OVER (PARTITION BY duplicates) AS keeper"
    return (
        f"(SELECT sentence, sentence AS keeper FROM {surviving(plan)} WHERE duplicates IS NULL UNION ALL "
        f"SELECT sentence, keeper FROM (SELECT sentence, {first} FROM ({members})) WHERE keeper IS NOT NULL)"
    )


def read_keepers(lake: Lake) -> np.ndarray:
    """Return the keeper of each sentence by its number, uint32 (n,); NOBODY for one without.

    Reads the table ``cut_keepers``, the rows of `with_keepers`.
    """
    keepers = np.full(lake.query("SELECT count(*) FROM facts.contents")[0][0], NOBODY, np.uint32)
    for batch in lake.blocks("SELECT sentence, keeper FROM cut_keepers", rows=KEEPERS_AT_ONCE):
        keepers[batch["sentence"].to_numpy()] = batch["keeper"].to_numpy()
    return keepers


def surviving(plan: Plan) -> str:
    """Return SQL for the rows of ``facts.sentences`` that pass the rules and occur in a current document."""
    return f"(SELECT * FROM facts.sentences WHERE {_survives(plan)})"


def _survives(plan: Plan) -> str:
    """Return the SQL condition that a row of ``facts.sentences`` passes the rules and occurs in a current document."""
    return f"NOT gone AND ({passed(plan.sentence_checks)})"
