"""Decide whether a round of work items runs on this machine's process pool or on Ray.

A stage on Ray takes some 34 s on two cores, however small: each actor starts a worker that imports torch. The pool
takes 0.3 to 5 s. Ray on this machine ('local') has no more CPUs than the pool, so small rounds go to the pool. On a
cluster they stay on Ray unless the run says 'here': the driver may be a head node without GPUs or memory, or a laptop
(``ray://``) without access to the workers' storage, where an image that is not found would be quarantined. A model on a
cluster's GPU always stays there.
"""

from collections.abc import Sequence

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.place.placement import Placement

# On this machine: at 0.7 ms a row (the cheapest sentence scores) this many rows take as long as Ray takes to start.
SMALL_ROWS = 50_000
# On a cluster's driver, for jobs without a model: at 10 ms a row (decoding an image) a CPU does as many in that time.
CLUSTER_ROWS = 3_000


def may_stay_here(placement: Placement) -> bool:
    """Return whether small rounds of this run may use this machine's process pool instead of Ray."""
    if placement.small_rounds == "ray":
        return False
    return not placement.is_cluster or placement.small_rounds == "here"


def is_small(items: Sequence[WorkItem], placement: Placement, has_model: bool) -> bool:
    """Return whether this machine runs a round of ``items`` in no more time than Ray takes to start.

    An item is never split, so a round with at most one item per local worker takes as long on a cluster.
    """
    rows = sum(len(item.keys) for item in items)
    if not placement.is_cluster:
        return rows <= SMALL_ROWS
    return len(items) <= placement.n_workers or (not has_model and rows <= CLUSTER_ROWS)
