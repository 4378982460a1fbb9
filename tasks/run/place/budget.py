"""Keep the token cost of generated texts within a run's limit."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import BudgetSpent, PairmillError
from pairmill.catalog.write.commit import Manifest, Usage
from pairmill.tasks.run.place.placement import Prices


@dataclass
class Budget:
    """The cost limit of a run and its spending so far.

    Attributes:
        most: The most that the run may spend on tokens, in the currency of its prices; 0 for no limit.
        spent: The cost so far, in the same currency.
        unbelieved: Tokens by step that servers reported beyond what is plausible; they are not priced.
    """

    most: float = 0.0
    spent: float = 0.0
    unbelieved: Counter[str] = field(default_factory=Counter)
    _a_row: dict[str, float] = field(default_factory=dict)  # step -> cost of a row of its most expensive item so far

    def priced(self, step: str, manifests: list[Manifest], prices: Prices) -> list[Manifest]:
        """Add the token cost to the manifests and to the run's total."""
        found = [_priced(manifest, prices) for manifest in manifests]
        for manifest in found:
            self.unbelieved[step] += manifest.usage.unbelieved if manifest.usage else 0
            if manifest.usage and manifest.rows:
                self.spent += manifest.usage.cost
                self._a_row[step] = max(self._a_row.get(step, 0.0), manifest.usage.cost / manifest.rows)
        return found

    def affordable(self, step: str, items: Sequence[WorkItem], prices: Prices) -> Iterator[Sequence[WorkItem]]:
        """Yield the items in portions that fit the remaining budget; all at once without a limit.

        A row is assumed to cost as much as a row of the step's most expensive item so far. A step's first portion is
        one item, to learn its cost; each portion's cost is known before the next is yielded.

        Raises BudgetSpent when no further item fits, PairmillError when a server reports no token usage. Finished work
        is committed.
        """
        if not self.most or not (prices.prompt or prices.answer):
            yield items
            return
        done = 0
        while done < len(items):
            if self._a_row.get(step) == 0.0:
                raise PairmillError(
                    f"stopped at a commit: the server reports no token usage for '{step}', so that --max-cost "
                    "cannot hold. Have the server report `usage`, or run again without --max-cost."
                )
            if self.spent >= self.most or not self._has_room(step, len(items[done].keys)):
                raise BudgetSpent(
                    f"stopped at a commit: texts cost {self.spent:.4f} of the {self.most:g} that this run may spend, "
                    f"and {sum(len(item.keys) for item in items[done:])} more were to be made.{self._beyond(step)} "
                    "Run again with a higher --max-cost (compute.max_cost in Prefect); what is made is not made again."
                )
            end, rows = done + 1, len(items[done].keys)
            while step in self._a_row and end < len(items) and self._has_room(step, rows + len(items[end].keys)):
                rows += len(items[end].keys)
                end += 1
            yield items[done:end]
            done = end

    def _beyond(self, step: str) -> str:
        """Return the sentence about implausible tokens of a step for an error message, '' without any."""
        n = self.unbelieved[step]
        return f" {n:,} tokens that their server reports beyond what the answers can have taken are not in it." * (
            n > 0
        )

    def _has_room(self, step: str, rows: int) -> bool:
        """Return whether ``rows`` more rows of a step fit the budget."""
        return self.spent + rows * self._a_row.get(step, 0.0) <= self.most


def _priced(manifest: Manifest, prices: Prices) -> Manifest:
    """Return the manifest with the cost of its tokens."""
    usage = manifest.usage
    if usage is None:
        return manifest
    return replace(manifest, usage=replace(usage, cost=cost(usage, prices)))


def cost(usage: Usage, prices: Prices) -> float:
    """Return the cost of a usage. Discarded tokens count at the higher of the two prices."""
    dearer = max(prices.prompt, prices.answer)
    tokens = usage.prompt_tokens * prices.prompt + usage.tokens * prices.answer + usage.discarded_tokens * dearer
    return tokens / 1e6
