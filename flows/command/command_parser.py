"""Parse a command line with argparse, and tell a mistake in one line: the nearest name, an example."""

import argparse
import os
from typing import Any, NoReturn

EXAMPLE = "example: "  # begins the epilog of a command


class CommandParser(argparse.ArgumentParser):
    """Parser that names the nearest choice for a misspelt one, and keeps the line breaks of its epilog.

    An error is one line with an example instead of the list of all options.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, **options)

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and one line: what is wrong, an example, and where the options are listed."""
        epilog = self.epilog or ""
        example = f" Example: {epilog.removeprefix(EXAMPLE)}" if epilog.startswith(EXAMPLE) else ""
        end = "" if message.endswith((".", "?")) else "."
        self.exit(2, f"{self.prog}: {message}{end}{example} (options: {self.prog} --help)\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the command line; an argument that the command does not have is named with its remedy."""
        found, extra = self.parse_known_args(args, namespace)
        if extra:
            found.parser.error(_unknown(extra[0], found.parser))
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is not among the action's choices, with the nearest of them."""
        if action.choices is None or value in action.choices:
            return
        from difflib import get_close_matches

        choices = [str(choice) for choice in action.choices]
        near = get_close_matches(str(value), choices, n=1)
        remedy = f"did you mean '{near[0]}'?" if near else f"there are {', '.join(choices)}."
        raise argparse.ArgumentError(action, f"there is no '{value}'; {remedy}")


def _unknown(given: str, parser: argparse.ArgumentParser) -> str:
    """Return what is wrong with an argument that ``parser`` does not have."""
    from difflib import get_close_matches

    options = [option for action in parser._actions for option in action.option_strings]
    if given.startswith("-"):
        name = given.partition("=")[0]
        near = [option for option in options if option.startswith(name)]
        near = near or get_close_matches(name, options, n=1, cutoff=0.7)  # '--set' is not near '--source'
        return f"there is no option '{given}'" + (f"; did you mean '{near[0]}'?" if near else "")
    source = f"; did you mean --source {given}?" if "--source" in options and os.path.exists(given) else ""
    return f"'{given}' is one argument too many{source}"


class ShowVersion(argparse.Action):
    """Print the installed version and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print ``pairmill VERSION``."""
        from importlib.metadata import version

        print(f"pairmill {version('pairmill')}")
        parser.exit()
