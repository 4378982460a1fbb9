"""Declare the commands around recipes, models, agents and shells, from `recipe` to `completion`."""

from typing import Any

from pairmill.flows.command.shared_options import (
    add_command,
    lake_option,
)


def add_setup(commands: Any) -> None:
    """Add these commands to the parser."""
    _recipe(commands)
    _mcp(commands)
    _completion(commands)


def _recipe(commands: Any) -> None:
    """Add `recipe show` and `recipe schema`."""
    command = add_command(
        commands, "recipe", "pairmill_recipe:show", "print a recipe, or the JSON schema of all recipes"
    )
    inner = command.add_subparsers(title="commands", required=True, metavar="COMMAND")
    about = "Print a recipe, to start one of your own from."
    show = inner.add_parser("show", help=about, description=about, allow_abbrev=False)
    show.add_argument(
        "recipe", metavar="RECIPE", help="a recipe (folder, captions, 15m, 30m, 100m, demo) or a YAML file"
    )
    show.set_defaults(command="pairmill_recipe:show", parser=show)
    about = "Print the JSON schema by which editors complete and check recipes."
    schema = inner.add_parser("schema", help=about, description=about, allow_abbrev=False)
    schema.set_defaults(command="pairmill_recipe:schema", parser=schema)


def _mcp(commands: Any) -> None:
    """Add the `mcp` command."""
    text = "answer an agent about a lake by the Model Context Protocol, over stdin and stdout"
    lake_option(add_command(commands, "mcp", "pairmill_mcp:mcp", text))


def _completion(commands: Any) -> None:
    """Add the `completion` command."""
    command = add_command(commands, "completion", "completion:completion", "print a shell's code for completion at Tab")
    command.add_argument("shell", choices=("bash", "zsh", "fish"), help='bash, zsh: eval "$(pairmill completion bash)"')
