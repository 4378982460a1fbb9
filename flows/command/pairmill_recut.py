"""Implement `pairmill recut`: publish a version by other rules from the scores that a lake holds."""

from argparse import Namespace

from pairmill.catalog.ask import datasets
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.yaml_text import parsed
from pairmill.catalog.terms.controls import visible
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.command.pairmill_run import overrides
from pairmill.tasks.recut import recut as publish_recut


def recut(args: Namespace) -> int:
    """Publish, and print the version beside the one that it changes."""
    changes = {key: _value(key, text) for key, text in overrides(args.set).items()}
    check_is_lake(args.lake)
    with create_or_open(args.lake) as lake:
        before = datasets.find(lake, args.dataset)
        made = publish_recut(lake, str(before), changes)
    state = "published" if made.is_new else "unchanged: the newest version is this dataset"
    print(visible(f"{made.name}@{made.version}  {made.n_pairs:,} pairs ({state}); {before} has {before.n_pairs:,}"))
    return 0


def _value(key: str, text: str) -> object:
    """Parse the value of ``--set`` as YAML. Raises BadRecipe."""
    try:
        return parsed(text)
    except ValueError as error:
        raise BadRecipe(f"--set {key}: '{text[:200]}' is not a YAML value; put it into quotes: {error}") from error
