"""Implement the commands on one dataset version: `export`, `report`, `tag`, `recut`; and those that bring scores."""

import json
import shlex
import shutil
import webbrowser
from argparse import Namespace
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import work_without_pandas
from pairmill.catalog.lake.opening import check_is_lake, create_or_open, open_as_allowed
from pairmill.catalog.recipe.overrides import parse_value
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.counted import counted
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.api.question import json_value
from pairmill.flows.command.ask import read_names
from pairmill.flows.command.option_types import overrides
from pairmill.flows.command.terminal import console, print_notes

BESIDE = 10  # pictures that `recut --try` shows on either side of a threshold
if TYPE_CHECKING:
    from pairmill.catalog.write.import_scores import ImportedScores
    from pairmill.flows.api.answer_types import CutTrial, Dataset


def write_export(args: Namespace) -> int:
    """Export a dataset version to files, and print a line about them; the export is recorded in ``exports``."""
    from pairmill.tasks.release.export.export_forms import OF_DOCUMENTS
    from pairmill.tasks.release.export.picture_folder import FolderOptions

    with open_as_allowed(args.lake) as lake:
        selected = OpenLake(lake).selection(args.dataset, args.split, args.size, args.pairs, args.seed, args.list)
        dataset, screen = selected.versions[0], console()
        if args.concepts and selected.given():
            raise PairmillError("--concepts counts the pictures of one whole version. Leave it out.")
        with screen.status("counting the concepts by the version's CLIP"):
            gaps = OpenLake(lake).concepts(str(dataset), read_names(args.concepts)) if args.concepts else []
        chosen: dict[str, Any] = {"selected": selected}
        chosen |= {"captions": args.captions, "text": args.text, "shuffle": args.shuffle, "grow": args.grow}
        chosen |= {"metadata": args.metadata, "contact": args.contact}
        of_folder = {name: getattr(args, name) for name in FolderOptions.names()}
        chosen["options"] = FolderOptions(**{name: value for name, value in of_folder.items() if value is not None})
        place = (dataset.name, dataset.version, args.to, args.format)
        unit = "documents" if args.format in OF_DOCUMENTS else "pairs"
        print(visible(export_visibly(screen, lake, place, unit, gaps=gaps, **chosen)))
    return 0


def export_visibly(screen: Console, lake: Lake, place: tuple[str, int, str, Any], unit: str, **chosen: Any) -> str:
    """Export a version, show the progress and the notes, and return a line about the export.

    ``place``: (dataset, version, target folder or prefix, format). ``unit``: 'pairs' or 'documents', a row of the
    export. ``chosen``: further arguments of `export`.
    """
    from pairmill.flows.command.display import Display
    from pairmill.tasks.release.export.export import export
    from pairmill.tasks.run.place.progress import Progress

    with Display(screen) as display:

        def show(done: int, total: int) -> None:
            display.progress(Progress(f"export {place[0]}@{place[1]}", done, total, unit))

        found = export(lake, *place, progress=show, **chosen)
    print_notes(screen, found.notes)
    return f"{found.uri}: {found.rows:,} {unit} in {found.files:,} files, {found.bytes / 1e6:,.1f} MB"


def report(args: Namespace) -> int:
    """Print the path of the version's report; write the report if it is missing or damaged."""
    from pairmill.flows.run.outcome import ensure_report

    with open_lake(args.lake) as lake:
        path = Path(ensure_report(lake.lake, lake.dataset(args.dataset).version))
    if args.to:
        path = _copy_report(path, Path(args.to).expanduser())
    print(visible(str(path)))
    if args.open and not webbrowser.open(path.absolute().as_uri()):
        raise PairmillError("no web browser is known on this machine; open the file above in one.")
    return 0


def _copy_report(path: Path, to: Path) -> Path:
    """Copy the report to the file, or into the folder, ``to``. Raises PairmillError if it cannot be written."""
    target = to / path.name if to.is_dir() else to
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    except OSError as error:
        raise PairmillError(f"the report cannot be written to '{target}' ({error}); give another --to.") from error
    return target


def tag(args: Namespace) -> int:
    """Give a version a further name (a tag), or remove one; print the version's names. Takes no lease."""
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
    """Import a file's scores; print how many pictures have a score and how a rule reads it."""
    work_without_pandas()
    with open_lake(args.lake) as opened:
        done = opened.import_scores(args.file, args.name, args.key, args.column)
        versions = [each.version for each in opened.datasets()]
        newest = max(versions, key=lambda each: each.created_at, default="")
    print(json.dumps(asdict(done)) if args.format == "json" else visible(_text(done, args.key, str(newest), args.lake)))
    return 0


def convert_file(args: Namespace) -> int:
    """Convert a head's file; print how a recipe names it."""
    from pairmill.ops.models.clip.vector_head import convert_head

    convert_head(args.file, args.clip, args.to, activation=args.activation, output=args.output)
    print(visible(f"{args.to}: written for {args.clip}; in a recipe: heads: {{NAME: {args.to}}}"))
    return 0


def _text(done: "ImportedScores", key: str, newest: str, lake: str) -> str:
    """Describe an import in lines; ``newest`` is a version of ``lake`` to re-cut, '' without one."""
    pictures = done.scored + done.without
    lines = [f"{done.name}: {done.scored:,} of {pictures:,} pictures have a score, {done.added:,} by this import"]
    if done.unmatched:
        lines.append(f"{done.unmatched:,} of the file's {done.rows:,} rows name no picture of the lake by {key}")
    if done.without:
        lines.append(f"{done.without:,} pictures have none: a rule that reads {done.name} drops these, unless it says "
                     f"coalesce({done.name}, …)")  # fmt: skip
    example = "…" if done.median is None else f"{done.median:.4g}"
    lines.append(f"in a recipe: imported: [{done.name}], and a rule such as {done.name} >= {example} (the median)")
    if newest and done.median is not None:
        rule = shlex.quote(f"images.{done.name}.keep={done.name} >= {example}")
        lines.append(f"its half now: pairmill recut {newest} --set {rule} --lake {shlex.quote(lake)}")
    return "\n".join(lines)


def recut(args: Namespace) -> int:
    """Publish a version by changed rules, and print its size; with ``--dry-run`` print a trial, and publish nothing."""
    from pairmill.tasks.recut import TRIED, kind_of_rule
    from pairmill.tasks.recut import recut as publish_recut

    changes: dict[str, Any] = {key: parse_value(key, text) for key, text in overrides(args.set, args.packs).items()}
    work_without_pandas()
    check_is_lake(args.lake)
    with open_lake(args.lake) as opened:
        version = opened.dataset(args.dataset).version
        if args.recipe:
            changes = _of_recipe(opened.lake, version, args.recipe) | changes
        if args.tried:
            changes |= {f"{(kind := kind_of_rule(opened.lake, args.tried))}.{TRIED}.keep": args.tried}
            trial = opened.try_recut(str(version), changes, args.name, {TRIED: BESIDE})
            _show_trial(trial, args.format)
            if args.format != "json":
                print(visible(_of_tried(trial, kind, args.tried, args.lake)))
            return 0
        if args.dry_run:
            _show_trial(opened.try_recut(str(version), changes, args.name), args.format)
            return 0
    with create_or_open(args.lake) as lake:
        before = OpenLake(lake).dataset(args.dataset).version
        made = publish_recut(lake, str(before), changes, args.name)
    if args.format == "json":
        print(json.dumps(asdict(made) | {"before": str(before), "n_pairs_before": before.n_pairs}))
        return 0
    print_notes(console(), made.notes)
    state = "published" if made.is_new else "unchanged: the newest version is this dataset"
    pairs = f"{counted(made.n_pairs, 'pairs')} ({state}); {before} has {before.n_pairs:,}"
    print(visible(f"{made.name}@{made.version}  {pairs}"))
    return 0


def _of_recipe(lake: Lake, version: "Dataset", name: str) -> dict[str, Any]:
    """Return a recipe's settings of the cut, by dotted key; note its other settings that differ from the version's."""
    from pairmill.flows.run.settings import load_recipe
    from pairmill.tasks.recut import settings_of_cut

    changes, others = settings_of_cut(lake, version, load_recipe(name))
    if others:
        kept = f"{', '.join(others)} of '{name}' differ from {version}'s, which a re-cut keeps"
        print_notes(console(), [f"{kept}; a run changes them: pairmill run {name}"])
    return changes


def _of_tried(trial: "CutTrial", kind: str, keep: str, lake: str) -> str:
    """Return lines on a tried rule: what it drops, pictures on either side, and the command that publishes it."""
    rates = [(_rate(each.n_in, each.n_dropped), each.n_in) for each in trial.funnel if each.rule == "try"]
    lines = [f"\n{keep}: keeps {rate} of the {n_in:,} pictures that reach it" for rate, n_in in rates]
    at, rule = f"--lake {shlex.quote(lake)}", shlex.quote(f"{kind}.NAME.keep={keep}")
    lines.append(f"in pictures: pairmill browse {at}, page /rules?dataset={trial.before}")
    lines.append(f"to publish: pairmill recut {trial.before} --set {rule} {at}")
    return "\n".join(lines)


def _show_trial(trial: "CutTrial", form: str) -> None:
    """Print a trial: missing scores, images that each rule keeps, and the images nearest each threshold."""
    if form == "json":
        print(json.dumps(json_value(trial) | {"before": str(trial.before)}, ensure_ascii=False))
        return
    for each in trial.missing:
        cost = "at an unknown cost" if each.seconds is None else f"some {each.seconds:,.0f} s of work"
        print(f"needed  {each}: a run makes them, {cost}")
    if not trial.missing:
        print("needed  nothing: every score is there")
    was = {step.rule: step for step in trial.funnel_before}
    print(f"{'rule':<20}{'in':>12}{'dropped':>12}{'kept':>12}{'rate':>9}{'was':>9}")
    for step in trial.funnel:
        before = _rate(was[step.rule].n_in, was[step.rule].n_dropped) if step.rule in was else "new"
        rate = _rate(step.n_in, step.n_dropped)
        kept = step.n_in - step.n_dropped
        print(f"{visible(step.rule):<20}{step.n_in:>12,}{step.n_dropped:>12,}{kept:>12,}{rate:>9}{before:>9}")
    change = trial.kept - trial.before.n_pairs
    print(f"pairs   {trial.kept:,}; {trial.before} has {trial.before.n_pairs:,} ({change:+,})")
    for (rule, label, edge), items in groupby(trial.marginal, lambda item: (item.rule, item.label, item.edge)):
        print(visible(f"\n{rule}: nearest {label} = {edge:g}"))
        for item in items:
            fate = f"dropped by {item.dropped_by}" if item.dropped_by else "kept"
            print(visible(f"  {item.value:<10.4g} {fate:<24} {item.image_id}  {item.url}"))


def _rate(n_in: int, n_dropped: int) -> str:
    """Format the share of items that a rule keeps."""
    return f"{(n_in - n_dropped) / n_in:.1%}" if n_in else "–"
