"""Keep what generated texts cost within what a run may spend."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.commit import Manifest, Usage
from pairmill.tasks.run.placement import Prices


@dataclass
class Budget:
    """The ``most`` that a run may spend on tokens (0: any sum), and what it ``spent``, in its prices' currency; and the
    tokens that servers report and that are not believed, by step."""

    most: float = 0.0
    spent: float = 0.0
    unbelieved: Counter[str] = field(default_factory=Counter)
    _a_row: dict[str, float] = field(default_factory=dict)  # of a step's dearest item so far

    def priced(self, step: str, manifests: list[Manifest], prices: Prices) -> list[Manifest]:
        """Return the manifests with what their tokens cost, and count it."""
        found = [_priced(manifest, prices) for manifest in manifests]
        for manifest in found:
            self.unbelieved[step] += manifest.usage.unbelieved if manifest.usage else 0
            if manifest.usage and manifest.rows:
                self.spent += manifest.usage.cost
                self._a_row[step] = max(self._a_row.get(step, 0.0), manifest.usage.cost / manifest.rows)
        return found

    def affordable(self, step: str, items: Sequence[WorkItem], prices: Prices) -> Iterator[Sequence[WorkItem]]:
        """Yield the items in portions that the rest has room for, were each row as dear as those of the step's dearest
        item so far; all at once where nothing limits them. A step's first portion is one item, to see what it costs;
        what a portion cost is known before the next.

        Raises PairmillError when there is no room for another item, and when a server does not tell what it took: what
        was done is committed.
        """
        if not self.most or not (prices.prompt or prices.answer):
            yield items
            return
        done = 0
        while done < len(items):
            if self._a_row.get(step) == 0.0:
                raise PairmillError(
                    f"stopped at a commit: the server tells no tokens (usage) of the texts of '{step}', so that what "
                    "they cost cannot be kept within --max-cost. Have it tell them, or run again without."
                )
            if self.spent >= self.most or not self._has_room(step, len(items[done].keys)):
                raise PairmillError(
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
        n = self.unbelieved[step]
        return f" {n:,} tokens that their server reports beyond what the answers can have taken are not in it." * (
            n > 0
        )

    def _has_room(self, step: str, rows: int) -> bool:
        return self.spent + rows * self._a_row.get(step, 0.0) <= self.most


def _priced(manifest: Manifest, prices: Prices) -> Manifest:
    usage = manifest.usage
    if usage is None:
        return manifest
    return replace(manifest, usage=replace(usage, cost=cost(usage, prices)))


def cost(usage: Usage, prices: Prices) -> float:
    """Return what tokens cost; of an answer that was thrown away each token as the dearer of both kinds."""
    dearer = max(prices.prompt, prices.answer)
    tokens = usage.prompt_tokens * prices.prompt + usage.tokens * prices.answer + usage.discarded_tokens * dearer
    return tokens / 1e6
