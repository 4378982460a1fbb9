"""Forget a scorer's rows: delete them under the lease, then erase their bytes."""

import uuid

from pairmill.catalog.cut.facts import facts_folder
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.compare.forgotten_scores import STEP
from pairmill.catalog.upkeep.forgotten_scorer import Forgettable, delete_scorer, forgettable
from pairmill.catalog.write import lease
from pairmill.tasks.upkeep.erase import Erased, erase

WAIT_SECONDS = 60.0


def forget(lake: Lake, digest: str) -> tuple[Forgettable, Erased]:
    """Delete the rows of one scorer in one transaction, then erase their bytes; return what was there.

    A killed command leaves the rows deleted, and their bytes to the next maintenance.

    Raises:
        PairmillError: As `forgettable`.
        LeaseHeld: A run writes to the lake, and did not end within a minute.
    """
    with lease.writing(lake, uuid.uuid4().hex, f"{STEP}{digest}", WAIT_SECONDS) as writer:
        found = forgettable(lake, digest)
        commit = writer.begin(f"{STEP}{found.digest}")
        lake.retrying(lambda: delete_scorer(lake, found, commit))
        for path in facts_folder(lake).glob("*"):
            path.unlink(missing_ok=True)
        return found, erase(writer)
