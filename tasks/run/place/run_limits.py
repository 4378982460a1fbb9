"""Stop a run at a commit when it has used up its hours, GPU-hours, rows or bytes."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from pairmill.catalog.terms.error import BudgetSpent
from pairmill.catalog.write.commit import Manifest


@dataclass(frozen=True)
class RunLimits:
    """The most that one run may use; 0 is any amount. None of them is part of a dataset's identity.

    Attributes:
        hours: Hours by the clock, from the start of the run.
        gpu_hours: Hours of work on GPUs, times the GPUs of the worker.
        rows: Rows that are written, over all tables.
        gigabytes: Bytes that are written, in 10**9.
    """

    hours: float = 0.0
    gpu_hours: float = 0.0
    rows: int = 0
    gigabytes: float = 0.0


@dataclass
class Spending:
    """What a run has used so far of its ``limits``."""

    limits: RunLimits = RunLimits()
    gpu_hours: float = 0.0
    rows: int = 0
    gigabytes: float = 0.0
    _began: float = field(default_factory=time.monotonic)

    @property
    def hours(self) -> float:
        """Hours since the run began."""
        return (time.monotonic() - self._began) / 3600

    def add(self, manifests: Sequence[Manifest], gpus: float) -> None:
        """Add finished partitions, which workers with ``gpus`` GPUs each computed."""
        self.gpu_hours += gpus * sum(each.seconds for each in manifests) / 3600
        self.rows += sum(each.rows for each in manifests)
        self.gigabytes += sum(each.bytes for each in manifests) / 1e9

    def check(self, step: str, left: int) -> None:
        """Raise BudgetSpent if a limit is reached and ``left`` items of a step are still to do."""
        for name in ("hours", "gpu_hours", "rows", "gigabytes"):
            most, used = getattr(self.limits, name), getattr(self, name)
            if left and most and used >= most:
                option = name.replace("_", "-")
                raise BudgetSpent(
                    f"stopped at a commit: this run may use {most:g} {option}, and has used {used:.4g}; {left:,} items "
                    f"of '{step}' were to be done. Run it again to go on (it counts from 0 again), or with a higher "
                    f"--max-{option} (compute.max_{name} in Prefect)."
                )
