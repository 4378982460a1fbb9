"""Implement `pairmill schedule`: set, remove or list the schedules of recipes on a running Prefect server."""

from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.option_types import overrides
from pairmill.flows.command.run_parameters import parameters
from pairmill.flows.run.settings import RECIPES, load_recipe
from pairmill.flows.with_prefect.local_prefect import answers, known_server
from pairmill.flows.with_prefect.schedules import Timetable, list_schedules, remove_schedule, set_schedule

DEFAULT_TIME = (2, 0)


def schedule(args: Namespace) -> int:
    """Set the schedule of a recipe and a lake, remove it (``--off``), or list all schedules.

    Raises PairmillError for options that contradict each other, a missing source, and a server that does not answer.
    """
    if not args.recipe:
        return _list(args)
    if args.off == bool(args.every):
        raise PairmillError("say --every hour, day or week to set the schedule, or --off to remove it.")
    deployment, lake = f"curate/{_shipped(args.recipe)}", str(Path(args.lake).expanduser().absolute())
    if args.off:
        with _client() as client:
            was_there = remove_schedule(client, deployment, lake)
        print(visible(f"{deployment}, {lake}: {'schedule removed' if was_there else 'there was no schedule'}"))
        return 0
    timetable, wanted = _timetable(args), _checked(args) | {"lake": lake}
    with _client() as client:
        outcome = set_schedule(client, deployment, timetable, wanted)
    print(visible(f"{deployment}: {timetable}, {_text(wanted)} ({outcome})"))
    return 0


def _list(args: Namespace) -> int:
    """Print all schedules of curate's deployments, one a line."""
    if args.every or args.off or args.source or args.set or args.at or args.models != "recipe":
        raise PairmillError("name the recipe of the schedule: pairmill schedule 30m --every day --source pages")
    with _client() as client:
        rows = list_schedules(client, [f"curate/{name}" for name in _names()])
    for row in rows:
        paused = "" if row.is_active else " (paused)"
        print(visible(f"{row.deployment}: {row.when}{paused}, {_text(row.parameters)}"))
    if not rows:
        print("no schedule yet; set one: pairmill schedule 30m --every day --source pages")
    return 0


def _checked(args: Namespace) -> dict[str, Any]:
    """Return the parameters of the scheduled runs.

    Raises PairmillError and SourceError for what would fail each of them.
    """
    recipe = load_recipe(args.recipe, overrides(args.set), args.models)
    if not (args.source or recipe.sources):
        raise PairmillError(f"recipe '{args.recipe}' names no source; give one: --source FOLDER or s3://bucket/prefix")
    wanted = parameters(args)
    from pairmill.ops.read.source import open_source

    for uri in wanted.get("sources", []):
        if "${" not in uri:  # the worker's environment has the variable
            open_source(uri)
    return wanted


def _timetable(args: Namespace) -> Timetable:
    """Return when runs start. Raises PairmillError for ``--every hour`` with an hour."""
    if args.every == "hour" and args.at and args.at[0]:
        raise PairmillError("--every hour takes a minute alone: --at 00:15 is a quarter past each hour.")
    return Timetable(args.every, *(args.at or DEFAULT_TIME))


def _names() -> list[str]:
    return sorted(file.stem for file in RECIPES.glob("*.yaml"))


def _shipped(recipe: str) -> str:
    """Return ``recipe`` if it has a deployment. Raises PairmillError otherwise, with the nearest name."""
    if recipe in _names():
        return recipe
    near = get_close_matches(recipe, _names(), n=1)
    remedy = f"did you mean '{near[0]}'?" if near else f"deployed are {', '.join(_names())}."
    raise PairmillError(f"recipe '{recipe}' has no deployment that could be scheduled; {remedy}")


@contextmanager
def _client() -> Iterator[Any]:
    """Yield a client of the configured server, else of that of `pairmill up`. Raises PairmillError if none answers."""
    if not (api := known_server()) or not answers(api):
        at = f" at {api}" if api else ""
        raise PairmillError(f"no Prefect server answers{at}; start one by `pairmill up`, or set PREFECT_API_URL.")
    from prefect.client.orchestration import SyncPrefectClient

    with SyncPrefectClient(api) as client:
        yield client


def _text(given: dict[str, Any]) -> str:
    """Format a run's parameters."""
    sources = ", ".join(given.get("sources") or []) or "the recipe's own sources"
    changes = "".join(f", {key}={value}" for key, value in (given.get("overrides") or {}).items())
    models = f", models {given['models']}" if given.get("models", "recipe") != "recipe" else ""
    lake = given.get("lake") or "the lake of the worker"
    return f"{sources} into {lake}{changes}{models}"
