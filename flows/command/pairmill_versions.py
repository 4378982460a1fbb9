"""Implement `pairmill tag` and `pairmill drop`: name a dataset version, and delete one."""

from argparse import Namespace
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.version_names import name_version, remove_name, version_names
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.command.confirmed_removal import confirmed_removal
from pairmill.tasks.upkeep.removal import drop as drop_version

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import Dataset


def tag(args: Namespace) -> int:
    """Name a version, or remove a name; the lease is not needed."""
    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        dataset = OpenLake(lake).dataset(args.dataset).version
        change = remove_name if args.remove else name_version
        change(lake, dataset.name, dataset.version, args.name)
        names = version_names(lake).get((dataset.name, dataset.version), [])
    print(visible(f"{dataset} has the names {', '.join(names)}" if names else f"{dataset} has no name"))
    return 0


def drop(args: Namespace) -> int:
    """Delete a version's published rows after its exact name is confirmed; print what was removed and what stays."""
    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        dataset = _exactly(lake, args.dataset)
        about = f"{dataset.n_pairs:,} pairs, published {dataset.created_at:%Y-%m-%d %H:%M}"
        going = [
            f"{dataset}: {about}. What is dropped cannot be put back.",
            *(f"stays: {line}" for line in _stays(lake, dataset)),
        ]

        def told(report: dict[str, Any]) -> Iterator[str]:
            n = report["rows"]
            rows = f"{n['pairs']:,} pairs, {n['decisions']:,} decisions and its funnel"
            yield f"dropped {dataset}: {rows}; a later run makes a version of another number"

        question, answers = f"write {dataset} to drop it:", (str(dataset).lower(),)
        remove = partial(drop_version, lake, lambda: _exactly(lake, args.dataset))
        return confirmed_removal(args, going, question, remove, told, answers)


def _exactly(lake: Lake, spec: str) -> "Dataset":
    """Return the dataset for NAME@VERSION. Raise PairmillError for any other way to name it, or if it has a name."""
    dataset = OpenLake(lake).dataset(spec).version
    if spec != str(dataset):
        raise PairmillError(
            f"'{spec}' is {dataset} now, and may be another version tomorrow. Name the very version: pairmill drop "
            f"{dataset}"
        )
    if names := version_names(lake).get((dataset.name, dataset.version)):
        raise PairmillError(
            f"{dataset} has the name '{names[0]}', by which others may cite it. To drop it all the same, first run: "
            f"pairmill tag {dataset} {names[0]} --remove"
        )
    return dataset


def _stays(lake: Lake, dataset: "Dataset") -> list[str]:
    """List what a dropped version leaves behind."""
    from pairmill.flows.run.outcome import report_path

    found = ["documents, pictures and scores, for other versions and the next run"]
    found += [f"export {uri} ({format}, {rows:,} pairs)" for uri, format, rows in OpenLake(lake).exports(str(dataset))]
    report = report_path(lake.uri, dataset)
    return [*found, *([f"report {report}"] if report.exists() else [])]
