"""Declare `recipe` and `mcp`, the commands for editors and agents, and `recut`."""

from collections.abc import Callable
from typing import Any


def add_recipe(commands: Any, add: Callable[..., Any]) -> None:
    """Add `recipe show` and `recipe schema`."""
    command = add(commands, "recipe", "pairmill_recipe:show", "print a recipe, or the JSON schema of all recipes")
    inner = command.add_subparsers(title="commands", required=True, metavar="COMMAND")
    about = "Print a recipe, to start one of your own from."
    show = inner.add_parser("show", help=about, description=about, allow_abbrev=False)
    show.add_argument("recipe", metavar="RECIPE", help="a recipe (folder, 15m, 30m, 100m, demo) or a YAML file")
    show.set_defaults(command="pairmill_recipe:show", parser=show)
    about = "Print the JSON schema by which editors complete and check recipes."
    schema = inner.add_parser("schema", help=about, description=about, allow_abbrev=False)
    schema.set_defaults(command="pairmill_recipe:schema", parser=schema)


def add_recut(commands: Any, add: Callable[..., Any], lake_option: Callable[[Any], None]) -> None:
    """Add `recut`."""
    text = "publish a version by other rules, from the scores that are there"
    command = add(commands, "recut", "pairmill_recut:recut", text)
    command.add_argument("dataset", metavar="NAME[@V]", help="the version whose recipe is changed")
    command.add_argument("--set", action="append", required=True, metavar="KEY=VALUE",
                         help="a rule, balance.cap, balance.target or association.max_uses; may repeat")  # fmt: skip
    lake_option(command)


def add_mcp(commands: Any, add: Callable[..., Any], lake_option: Callable[[Any], None]) -> None:
    """Add `mcp`."""
    text = "answer an agent about a lake by the Model Context Protocol, over stdin and stdout"
    lake_option(add(commands, "mcp", "pairmill_mcp:mcp", text))
