"""Complete a command line at Tab by argcomplete: commands, options, recipes, datasets, reasons, files."""

import argparse
from argparse import Namespace
from collections.abc import Iterable
from pathlib import Path
from typing import Any

RECIPES = Path(__file__).resolve().parents[1] / "recipes"


def completion(args: Namespace) -> int:
    """Print the code that a shell evaluates to complete `pairmill`."""
    from argcomplete import shellcode

    print(shellcode(["pairmill"], shell=args.shell))
    return 0


def complete(top: argparse.ArgumentParser) -> None:
    """Print the completions of the shell's unfinished command line (argcomplete's protocol), and exit."""
    from argcomplete import autocomplete

    commands = next(each for each in top._actions if isinstance(each, argparse._SubParsersAction)).choices.values()
    for action in (each for command in commands for each in command._actions):
        if completer := COMPLETERS.get(action.dest):
            action.completer = completer
    autocomplete(top, always_complete_options=False)


def recipes(prefix: str, **_: Any) -> Iterable[str]:
    """List the shipped recipes, and the YAML files and folders whose paths begin with ``prefix``."""
    from argcomplete.completers import FilesCompleter

    return [*sorted(file.stem for file in RECIPES.glob("*.yaml")), *FilesCompleter(("yaml", "yml"))(prefix)]


def dataset_names(parsed_args: Namespace, **_: Any) -> Iterable[str]:
    """List the datasets of the command line's lake by name and by NAME@VERSION; takes half a second."""
    from pairmill.flows.api.opened_lake import open_lake

    with open_lake(parsed_args.lake) as lake:
        found = [str(each) for each in lake.datasets()]
    return [*sorted({each.partition("@")[0] for each in found}), *found]


def reasons(**_: Any) -> Iterable[str]:
    """List the quarantine reasons, for ``--retry``."""
    from pairmill.catalog.terms.reasons import REASONS

    return REASONS


COMPLETERS = {"recipe": recipes, "dataset": dataset_names, "retry": reasons}
