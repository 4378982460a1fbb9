"""Stop a run at a commit when it has used up its hours, GPU-hours, rows, bytes or the money for its tokens."""

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.terms.error import BudgetSpent, PairmillError
from pairmill.catalog.write.commit import Manifest, Usage
from pairmill.tasks.run.place.placement import Prices


@dataclass
class Spending:
    """Hours, rows and bytes that a run has used so far, and its ``limits`` by the same names: 'hours', 'gpu_hours' ….

    A limit of 0 is any amount.
    """

    limits: Mapping[str, float] = field(default_factory=dict)
    gpu_hours: float = 0.0  # hours of work on GPUs, times the GPUs of the worker
    rows: int = 0  # rows that are written, over all tables
    gigabytes: float = 0.0  # bytes that are written, in 10**9
    _began: float = field(default_factory=time.monotonic)

    @property
    def hours(self) -> float:
        """Hours of wall time since the run began."""
        return (time.monotonic() - self._began) / 3600

    def add(self, manifests: Sequence[Manifest], gpus: float) -> None:
        """Add the GPU-hours, rows and bytes of finished partitions, computed by workers with ``gpus`` GPUs each."""
        self.gpu_hours += gpus * sum(each.seconds for each in manifests) / 3600
        self.rows += sum(each.rows for each in manifests)
        self.gigabytes += sum(each.bytes for each in manifests) / 1e9

    def check(self, step: str, left: int) -> None:
        """Raise BudgetSpent if a limit is reached and ``left`` items of a step are still to do."""
        for name, most in self.limits.items():
            used = getattr(self, name)
            if left and most and used >= most:
                option = name.replace("_", "-")
                raise BudgetSpent(
                    f"stopped at a commit: this run may use {most:g} {option}, and has used {used:.4g}; {left:,} items "
                    f"of '{step}' were to be done. Run it again to go on (it counts from 0 again), or with a higher "
                    f"--max-{option} (compute.max_{name} in Prefect)."
                )


@dataclass
class Budget:
    """The cost limit of a run and its spending so far."""

    most: float = 0.0  # the most that the run may spend on tokens, in the currency of its prices; 0 for no limit
    spent: float = 0.0  # the cost so far, in the same currency
    # tokens by step that servers reported beyond what is plausible; they are not priced
    unbelieved: Counter[str] = field(default_factory=Counter)
    _a_row: dict[str, float] = field(default_factory=dict)  # step -> cost of a row of its most expensive item so far

    def priced(self, step: str, manifests: list[Manifest], prices: Prices) -> list[Manifest]:
        """Return the manifests with the cost of their tokens, and add this cost to the run's total."""
        found = []
        for manifest in manifests:
            if usage := manifest.usage:
                usage = replace(usage, cost=cost(usage, prices))
                manifest = replace(manifest, usage=usage)
                self.unbelieved[step] += usage.unbelieved
                if manifest.rows:
                    self.spent += usage.cost
                    self._a_row[step] = max(self._a_row.get(step, 0.0), usage.cost / manifest.rows)
            found.append(manifest)
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
                what = "tokens that their server reports beyond what the answers can have taken are not in it."
                beyond = f" {n:,} {what}" if (n := self.unbelieved[step]) else ""
                raise BudgetSpent(
                    f"stopped at a commit: texts cost {self.spent:.4f} of the {self.most:g} that this run may spend, "
                    f"and {sum(len(item.keys) for item in items[done:])} more were to be made.{beyond} "
                    "Run again with a higher --max-cost (compute.max_cost in Prefect); what is made is not made again."
                )
            end, rows = done + 1, len(items[done].keys)
            while step in self._a_row and end < len(items) and self._has_room(step, rows + len(items[end].keys)):
                rows += len(items[end].keys)
                end += 1
            yield items[done:end]
            done = end

    def _has_room(self, step: str, rows: int) -> bool:
        """Return whether the budget pays for ``rows`` more rows of ``step``, at the highest cost of its rows so far."""
        return self.spent + rows * self._a_row.get(step, 0.0) <= self.most


def cost(usage: Usage, prices: Prices) -> float:
    """Return the cost of tokens in the currency of the prices; discarded tokens count at the higher of the two."""
    dearer = max(prices.prompt, prices.answer)
    tokens = usage.prompt_tokens * prices.prompt + usage.tokens * prices.answer + usage.discarded_tokens * dearer
    return tokens / 1e6
