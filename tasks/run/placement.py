"""Define where a stage's work goes: workers, CPUs, GPUs and Ray cluster. None of it is part of a dataset's identity."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Where rounds of little work run when there is Ray.
SmallRounds = Literal["auto", "here", "ray"]


@dataclass(frozen=True)
class Prices:
    """What a million tokens cost, read (``prompt``) and made (``answer``), in any one currency."""

    prompt: float = 0.0
    answer: float = 0.0


@dataclass(frozen=True)
class ModelPool:
    """How a model is placed: GPUs each replica takes (None: one where there are GPUs, else none), fewest and most
    replicas (0: as many as there is room for), feeders (None: by the CPUs there are). Of a model behind endpoints also
    the variable that holds their ``key``, the most ``connections`` at once at each, and its ``prices``."""

    gpus: float | None = None
    replicas: tuple[int, int] = (0, 0)
    feeders: int | None = None
    key: str = ""
    connections: int = 256
    prices: Prices = Prices()


@dataclass(frozen=True)
class Placement:
    """Workers, CPUs and models of a run. Never part of an identity: on CPUs any placement gives the same rows.

    ``workers`` 0 means one per CPU of this machine; on a cluster as many as it has CPUs, those that join it too.
    ``ray_address`` '' keeps to this machine, 'local' starts Ray here, anything else is a cluster. ``models`` has pools
    by the recipe's name of a model (clip, captioner, …); a model that is not named has the default pool.
    ``small_rounds`` says where rounds of little work run, as `tasks.run.small_rounds` reads it.
    """

    workers: int = 0
    ray_address: str = ""
    cpus_per_worker: float = 1.0
    models: Mapping[str, ModelPool] = field(default_factory=dict)
    small_rounds: SmallRounds = "auto"

    @property
    def n_workers(self) -> int:
        return self.workers or max(1, len(os.sched_getaffinity(0)))

    @property
    def is_cluster(self) -> bool:
        """Whether it is placed on a Ray cluster that others started."""
        return self.ray_address not in ("", "local")

    def pool_of(self, model: str) -> ModelPool:
        """Return the pool of the recipe's model of this name."""
        return self.models.get(model, ModelPool())
