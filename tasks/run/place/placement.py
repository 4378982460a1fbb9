"""Define where a run's work is placed: workers, CPUs, GPUs, Ray cluster. None of it is part of a dataset's identity."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

# Where small rounds run when the run uses Ray: on Ray too, or on this machine's process pool.
SmallRounds = Literal["ray", "pool"]


@dataclass(frozen=True)
class Prices:
    """The prices of a million tokens, in any one currency: ``prompt`` (input) and ``answer`` (output)."""

    prompt: float = 0.0
    answer: float = 0.0


@dataclass(frozen=True)
class ModelPool:
    """The placement of one model."""

    gpus: float | None = None  # GPUs of each replica; None: one where there are GPUs, else none
    replicas: tuple[int, int] = (0, 0)  # the fewest and the most replicas; 0: as many as fit
    feeders: int | None = None  # threads that prepare batches for each replica; None: the most that the CPUs allow
    key: str = ""  # the environment variable with the API key, for a model behind endpoints
    connections: int = 256  # the most concurrent requests to each endpoint
    prices: Prices = Prices()  # the prices of the endpoints' tokens
    accelerator: str = ""  # the kind of GPU on a Ray cluster, as Ray names it ('H100'); '' for any


@dataclass(frozen=True)
class Placement:
    """Workers, CPUs and models of a run. Never part of an identity: on CPUs any placement gives the same rows."""

    # the most workers; 0: one per CPU of this machine, or of the cluster, machines that join later included
    workers: int = 0
    # '' runs on this machine without Ray, 'local' starts Ray here, anything else is a cluster's address
    ray_address: str = ""
    # pools by the recipe's name of a model (clip, captioner, …); others have the default pool
    models: Mapping[str, ModelPool] = field(default_factory=dict)
    small_rounds: SmallRounds = "ray"  # where small rounds run, see `tasks.run.stage`
    # minutes without a finished row after which workers are ended, 0 for never; see `Watchdog`
    stall_minutes: float = 60.0

    @property
    def n_workers(self) -> int:
        """Maximum number of workers on this machine: ``workers``, or one per CPU that this process may use."""
        return self.workers or max(1, len(os.sched_getaffinity(0)))

    @property
    def is_cluster(self) -> bool:
        """Whether the run uses a Ray cluster that it did not start."""
        return self.ray_address not in ("", "local")

    def pool_of(self, model: str) -> ModelPool:
        """Return the pool of the model that the recipe names ``model``, the default pool if none is set."""
        return self.models.get(model, ModelPool())
