"""Run `pairmill` and kill the process (SIGKILL) while a kind of state is written: ``killed_in STATE ARGUMENT …``.

``lease``: the run has the lease and is about to cut. ``publish``: its version is written but not committed.
``digests``: a version is committed, but the stamps of its files are not recorded. ``seal``: the catalog has changed and
its seal is half written. ``export``: one file is finished; the second is written but not yet renamed to its final name.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from pairmill.catalog.lake.checksums import Checksums
from pairmill.catalog.lake.lake import Lake
from pairmill.flows.command.cli import main
from pairmill.tasks import publish
from pairmill.tasks.out import export
from tests.worlds.line import kill

STATES = ("lease", "publish", "digests", "seal", "export")
TAR_ROWS = 10


def killing(is_there: Callable[..., bool], call: Callable[..., Any], after: bool = False) -> Callable[..., Any]:
    """Wrap ``call``: kill the process before (or ``after``) the call whose arguments satisfy ``is_there``."""

    def called(*arguments: Any, **named: Any) -> Any:
        hit = is_there(*arguments)
        if hit and not after:
            kill()
        result = call(*arguments, **named)
        if hit:
            kill()
        return result

    return called


def arm(state: str) -> None:
    """Patch this process so that it is killed while ``state`` is written."""
    tars = 0

    def is_second_tar(_: str, to: str) -> bool:
        nonlocal tars
        tars += str(to).endswith(".tar")
        return tars == 2

    if state == "lease":
        publish.cut = killing(lambda *_: True, publish.cut)
    elif state == "publish":
        Lake.insert = killing(lambda _, table, *__: table == "datasets", Lake.insert, after=True)
    elif state == "digests":
        Checksums.record = killing(lambda *_: True, Checksums.record)
    elif state == "seal":
        os.replace = killing(lambda _, to: str(to).endswith(".seal"), os.replace)
    else:
        export.TAR_ROWS = TAR_ROWS
        os.replace = killing(is_second_tar, os.replace)


if __name__ == "__main__":
    arm(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
