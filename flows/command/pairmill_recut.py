"""Implement `pairmill recut`: cut by other rules from the scores that a lake holds, and publish or only show it."""

import json
from argparse import Namespace
from dataclasses import asdict
from itertools import groupby

from pairmill.catalog.lake.literals import work_without_pandas
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.yaml_text import parsed
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.api.question import json_value
from pairmill.flows.command.option_types import overrides
from pairmill.tasks.recut import CutTrial
from pairmill.tasks.recut import recut as publish_recut


def recut(args: Namespace) -> int:
    """Publish, and print the version beside the one that it changes; with ``--dry-run`` print what it would be."""
    changes = {key: _value(key, text) for key, text in overrides(args.set).items()}
    work_without_pandas()
    check_is_lake(args.lake)
    if args.dry_run:
        with open_lake(args.lake) as opened:
            _show_trial(opened.try_recut(args.dataset, changes, args.name), args.format)
        return 0
    with create_or_open(args.lake) as lake:
        before = OpenLake(lake).dataset(args.dataset).version
        made = publish_recut(lake, str(before), changes, args.name)
    if args.format == "json":
        print(json.dumps(asdict(made) | {"before": str(before), "n_pairs_before": before.n_pairs}))
        return 0
    state = "published" if made.is_new else "unchanged: the newest version is this dataset"
    print(visible(f"{made.name}@{made.version}  {made.n_pairs:,} pairs ({state}); {before} has {before.n_pairs:,}"))
    return 0


def _show_trial(trial: CutTrial, form: str) -> None:
    """Print a trial: what it needs, what each rule keeps, and the images nearest each threshold."""
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


def _value(key: str, text: str) -> object:
    """Parse the value of ``--set`` as YAML. Raises BadRecipe."""
    try:
        return parsed(text)
    except ValueError as error:
        raise BadRecipe(f"--set {key}: '{text[:200]}' is not a YAML value; put it into quotes: {error}") from error
