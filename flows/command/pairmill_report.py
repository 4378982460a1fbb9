"""Implement `pairmill report`: write the HTML report of a dataset version, and open it."""

import shutil
import webbrowser
from argparse import Namespace
from pathlib import Path

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import open_lake
from pairmill.flows.run.outcome import written_report


def report(args: Namespace) -> int:
    """Print the path of the version's report, which is written unless it is there and undamaged."""
    with open_lake(args.lake) as lake:
        path = Path(written_report(lake.lake, lake.dataset(args.dataset).version))
    if args.to:
        path = _copied(path, Path(args.to).expanduser())
    print(visible(str(path)))
    if args.open and not webbrowser.open(path.absolute().as_uri()):
        raise PairmillError("no web browser is known on this machine; open the file above in one.")
    return 0


def _copied(path: Path, to: Path) -> Path:
    """Copy the report to the file, or into the folder, ``to``. Raises PairmillError if it cannot be written."""
    target = to / path.name if to.is_dir() else to
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    except OSError as error:
        raise PairmillError(f"the report cannot be written to '{target}' ({error}); give another --to.") from error
    return target
