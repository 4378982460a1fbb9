"""Implement `pairmill completion`: print a script that completes commands, options, choices and recipes in a shell."""

import argparse
from argparse import Namespace

from pairmill.flows.command.arguments import parser

RECIPES = ("folder", "15m", "30m", "100m", "demo")
SCRIPT = """\
_pairmill() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=
    if (( COMP_CWORD == 1 )); then
        words="{commands}"
    else
        case "${{COMP_WORDS[1]}} $before" in
{values}
            *\\ --*) ;;
            *)
                case "${{COMP_WORDS[1]}}" in
{options}
                esac ;;
        esac
    fi
    COMPREPLY=( $(compgen -W "$words" -- "$current") )
}}
complete -o default -F _pairmill pairmill
"""
BEFORE = {"bash": "", "zsh": "autoload -U +X bashcompinit && bashcompinit\n"}


def completion(args: Namespace) -> int:
    """Print the script for a shell. Where it completes nothing, the shell completes names of files."""
    print(BEFORE[args.shell] + script(), end="")
    return 0


def script() -> str:
    """Write the script for bash, from the parser of the command line."""
    (commands,) = (action.choices for action in parser()._actions if isinstance(action.choices, dict))
    values = [
        f'            "{name} {option}") words="{" ".join(map(str, action.choices))}" ;;'
        for name, command in commands.items()
        for action in command._actions
        for option in action.option_strings
        if action.choices
    ]
    options = [
        f'                    {name}) words="{" ".join(_words(command))}" ;;' for name, command in commands.items()
    ]
    names = " ".join([*commands, "--help", "--version"])
    return SCRIPT.format(commands=names, values="\n".join(values), options="\n".join(options))


def _words(command: argparse.ArgumentParser) -> list[str]:
    """List what may stand anywhere after a command: its long options, recipes, and the choices of its arguments."""
    words = [option for action in command._actions for option in action.option_strings if option.startswith("--")]
    for action in command._actions:
        if not action.option_strings:
            words += RECIPES if action.metavar == "RECIPE" else map(str, action.choices or ())
    return words
