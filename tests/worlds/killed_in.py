"""Run `pairmill` and kill the process (SIGKILL) while a kind of state is written: ``killed_in STATE ARGUMENT …``.

``lease``: the run has the lease and is about to cut. ``publish``: its version is written but not committed.
``digests``: a version is committed, but the stamps of its files are not recorded. ``seal``: the catalog has changed and
its seal is half written. ``export``: one file is finished; the second is written but not yet renamed to its final name.

In a recaption: ``registered``: the first captions' files are registered but not committed. ``captioned``: only they are
committed. ``mark``: the folder of the export is empty. ``sample``: its second tar breaks off. ``list``: its second tar
is written but not listed. ``record``: all tars are written but not recorded in the lake. ``manifest``: they are
recorded, and the folder has no manifest.
"""

import os
import sys
from collections.abc import Callable
from typing import Any

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.checksums import Checksums
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.write import commit
from pairmill.flows.command.cli import main
from pairmill.tasks.generate import caption, waves
from pairmill.tasks.release.export import export, export_forms
from tests.worlds.line import kill

STATES = ("lease", "publish", "digests", "seal", "export")
CAPTION_STATES = ("registered", "captioned", "mark", "sample", "list", "record", "manifest")
TAR_ROWS = 10
FIRST, FIRST_ITEM = 8, 4  # of 40 pictures: some are first, most are not


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


def at_call(n: int, ending: str = "") -> Callable[..., bool]:
    """Whether this is the ``n``-th call; with ``ending``, of those whose second argument ends so."""
    calls = 0

    def counted(*arguments: Any) -> bool:
        nonlocal calls
        counts = not ending or str(arguments[1]).endswith(ending)
        calls += counts
        return counts and calls == n

    return counted


def arm(state: str) -> None:
    """Patch this process so that it is killed while ``state`` is written."""
    export.TAR_ROWS, caption.FIRST, caption.FIRST_ITEM = TAR_ROWS, FIRST, FIRST_ITEM
    if state in CAPTION_STATES:
        arm_recaption(state)
        return
    if state == "lease":
        waves.cut = killing(lambda *_: True, waves.cut)
    elif state == "publish":
        Lake.execute = killing(lambda _, sql, *__: sql.startswith("INSERT INTO datasets"), Lake.execute, after=True)
    elif state == "digests":
        Checksums.record = killing(lambda *_: True, Checksums.record)
    elif state == "seal":
        os.replace = killing(lambda _, to: str(to).endswith(".seal"), os.replace)
    else:
        os.replace = killing(at_call(2, ".tar"), os.replace)


def arm_recaption(state: str) -> None:
    """The same for the states of a recaption."""

    def has_captions(_: Any, manifests: list[Any], *__: Any) -> bool:
        return any(manifest.table == "captions" for manifest in manifests)

    if state == "registered":
        commit._insert_partitions = killing(has_captions, commit._insert_partitions, after=True)
    elif state == "captioned":
        Checksums.add = killing(lambda _, digests: any("/captions/" in path for path in digests), Checksums.add)
    elif state == "mark":
        os.replace = killing(at_call(1, ".pairmill"), os.replace)
    elif state == "sample":
        export_forms._add_sample = killing(at_call(TAR_ROWS + 3), export_forms._add_sample)
    elif state == "list":
        os.replace = killing(at_call(3, ".progress.json"), os.replace)  # the first lists nothing
    elif state == "record":
        export.record_export = killing(lambda *_: True, export.record_export)
    else:
        os.replace = killing(at_call(1, ".manifest.json"), os.replace)


if __name__ == "__main__":
    seal.SHARE = 0  # on a busy machine a short sealing takes long, and the last changes would go without
    arm(sys.argv[1])
    sys.exit(main(sys.argv[2:]))
