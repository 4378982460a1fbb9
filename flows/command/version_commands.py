"""Implement the commands on one dataset version: `export`, `report`, `tag`; and `import-scores`."""

import json
import shutil
import uuid
import webbrowser
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.command.ask import name_list
from pairmill.flows.command.terminal import console

if TYPE_CHECKING:
    from pairmill.catalog.write.import_scores import ImportedScores

WAIT_SECONDS = 60.0


def write_export(args: Namespace) -> int:
    """Export a dataset's files; take the lease only to record them in ``exports``."""
    from pairmill.tasks.release.export.export_forms import OF_DOCUMENTS

    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        opened = OpenLake(lake)
        dataset = opened.dataset(args.dataset).version
        gaps = opened.concepts(args.dataset, name_list(args.concepts)) if args.concepts else []
        chosen = {"captions": args.captions, "text": args.text, "shuffle": args.shuffle, "grow": args.grow}
        place = (dataset.name, dataset.version, args.to, args.format)
        unit = "documents" if args.format in OF_DOCUMENTS else "pairs"
        print(visible(export_shown(console(), lake, place, unit, gaps=gaps, **chosen)))
    return 0


def export_shown(screen: Console, lake: Lake, place: tuple[str, int, str, Any], unit: str, **chosen: Any) -> str:
    """Export the version and to the folder that ``place`` names, with its progress, and describe the export."""
    from pairmill.flows.command.display import Display
    from pairmill.tasks.release.export.export import export
    from pairmill.tasks.run.place.progress import Progress

    with Display(screen) as display:

        def show(done: int, total: int) -> None:
            display.progress(Progress(f"export {place[0]}@{place[1]}", done, total, "rows"))

        found = export(lake, *place, progress=show, **chosen)
    return f"{found.uri}: {found.rows:,} {unit} in {found.files:,} files, {found.bytes / 1e6:,.1f} MB"


def report(args: Namespace) -> int:
    """Print the path of the version's report, which is written unless it is there and undamaged."""
    from pairmill.flows.run.outcome import written_report

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


def tag(args: Namespace) -> int:
    """Name a version, or remove a name; the lease is not needed."""
    from pairmill.catalog.write.version_names import name_version, remove_name, version_names

    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        dataset = OpenLake(lake).dataset(args.dataset).version
        change = remove_name if args.remove else name_version
        change(lake, dataset.name, dataset.version, args.name)
        names = version_names(lake).get((dataset.name, dataset.version), [])
    print(visible(f"{dataset} has the names {', '.join(names)}" if names else f"{dataset} has no name"))
    return 0


def import_file(args: Namespace) -> int:
    """Import a file's scores, and print how many pictures have one and how a rule reads it."""
    from pairmill.catalog.lake.literals import work_without_pandas
    from pairmill.catalog.write import lease
    from pairmill.catalog.write.import_scores import import_scores

    work_without_pandas()
    check_is_lake(args.lake)
    purpose = f"import scores {args.name}"
    with create_or_open(args.lake) as lake, lease.writing(lake, uuid.uuid4().hex, purpose, WAIT_SECONDS) as writer:
        done = import_scores(writer, Path(args.file), args.name, args.key, args.column or args.name)
    print(json.dumps(asdict(done)) if args.format == "json" else visible(_text(done, args.key)))
    return 0


def _text(done: "ImportedScores", key: str) -> str:
    """Describe an import in lines."""
    pictures = done.scored + done.without
    lines = [f"{done.name}: {done.scored:,} of {pictures:,} pictures have a score, {done.added:,} by this import"]
    if done.unmatched:
        lines.append(f"{done.unmatched:,} of the file's {done.rows:,} rows name no picture of the lake by {key}")
    if done.without:
        lines.append(f"{done.without:,} pictures have none: a rule that reads {done.name} drops these, unless it says "
                     f"coalesce({done.name}, …)")  # fmt: skip
    example = "…" if done.median is None else f"{done.median:.4g}"
    lines.append(f"in a recipe: imported: [{done.name}], and a rule such as {done.name} >= {example} (the median)")
    return "\n".join(lines)
