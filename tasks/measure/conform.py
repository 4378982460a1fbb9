"""Test the rules of a recipe on texts that are known to have passed those rules: the texts that RealSyn released.

A text that a rule drops shows that our reading of the rule is stricter than the paper's. The texts are taken as they
are, one sentence each, because our splitter would cut some of them. Word shares for the entropy are those of the texts
themselves.
"""

from collections.abc import Callable, Sequence

import pyarrow as pa

from pairmill.catalog.queries.export.released_texts import Conformance, ScoredTexts
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.batch import Batch
from pairmill.ops.text.corpus_entropy import CorpusEntropy, count_words
from pairmill.tasks.run.place.identity import bound

AT_ONCE = 4096


def conform(plan: Plan, texts: Sequence[str], advance: Callable[[int], None]) -> list[Conformance]:
    """Return what each sentence rule of a plan does to ``texts``; ``advance`` is called with each number scored.

    Raises:
        PairmillError: There are no texts.
        ModelError: A model that a rule needs is missing.
        BadRecipe: A score's settings are not valid.
    """
    if not texts:
        raise PairmillError("there are no texts to test in this file")
    asked = {column for check in plan.sentence_checks for column in check.columns}
    ops = [each.op for each in bound(plan, "sentence") if asked & {column.name for column in each.score.columns}]
    ops.append(_entropy(texts))
    with ScoredTexts() as scored:
        for at in range(0, len(texts), AT_ONCE):
            chunk = list(texts[at : at + AT_ONCE])
            scored.add(_scored(chunk, ops, asked))
            advance(len(chunk))
        return scored.tested(plan.sentence_checks)


def _entropy(texts: Sequence[str]) -> CorpusEntropy:
    """Return the op by the words of the texts."""
    counts = count_words(texts)
    total = sum(counts.values())
    return CorpusEntropy({word: n / total for word, n in counts.items()})


def _scored(texts: list[str], ops: Sequence[Callable[[Batch], Batch]], asked: set[str]) -> pa.Table:
    """Return the texts with the columns that rules read."""
    batch: Batch = {"text": texts}
    for op in ops:
        batch = op(batch)
    return pa.table({name: pa.array(values) for name, values in batch.items() if name in asked | {"text"}})
