"""Decide whether a round of work items runs on this machine's own processes or on Ray.

A stage takes Ray some 34 s on two cores, however little it does: actors start, each with a worker that imports torch;
the pool takes 0.3 to 5 s. Ray on this machine ('local') has no CPU that the pool has not, so small rounds go to the
pool. On a cluster they stay on Ray unless the run says 'here': the driver's machine may be a head node without GPUs or
memory, or a laptop (``ray://``), that does not reach what workers reach, and a picture that is not found there would be
quarantined. A model on a cluster's GPU stays there always.
"""

from collections.abc import Sequence

from pairmill.catalog.pending.item import WorkItem
from pairmill.tasks.run.placement import Placement

# On this machine: at 0.7 ms, what the cheapest scores of a sentence take, so many rows take as long as Ray's start.
SMALL_ROWS = 50_000
# Beside a cluster, of jobs without a model: at 10 ms, what a picture takes to be decoded, a CPU does as many meanwhile.
CLUSTER_ROWS = 3_000


def may_stay_here(placement: Placement) -> bool:
    """Whether any round of this run may be done by this machine's own processes."""
    if placement.small_rounds == "ray":
        return False
    return not placement.is_cluster or placement.small_rounds == "here"


def is_small(items: Sequence[WorkItem], placement: Placement, has_model: bool) -> bool:
    """Whether a round of ``items`` takes this machine no longer than Ray takes to start.

    An item is never split, so a round of no more items than there are workers here takes a cluster as long as here.
    """
    rows = sum(len(item.keys) for item in items)
    if not placement.is_cluster:
        return rows <= SMALL_ROWS
    return len(items) <= placement.n_workers or (not has_model and rows <= CLUSTER_ROWS)
