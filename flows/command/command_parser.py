"""Declare commands and their options, and parse them with argparse; a mistake is one line with a remedy."""

import argparse
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

EXAMPLE = "example: "  # begins the epilog of a command
EITHER = "either"  # group of options that exclude each other


@dataclass(frozen=True)
class Option:
    """One argument of a command.

    A name without dashes makes it positional. A name with dashes makes it an option, which takes a value if it has a
    metavar or choices, and is a flag otherwise.
    """

    name: str  # its name, with the dashes
    about: str = ""  # its help, as argparse takes it (``%%`` for a percent sign), without its default
    metavar: str = ""  # name of its value in the help
    parse: Callable[[str], Any] = str  # convert the text of its value; raises ArgumentTypeError
    default: Any = ""  # its value if it is left out
    choices: Sequence[str] = ()  # its allowed values; the first is the default
    repeats: bool = False  # whether it may occur several times; its value is a list
    is_required: bool = False  # whether an option with dashes must occur
    group: str = ""  # title of its group in the help, '' for none; of all options with EITHER only one may occur
    more: Mapping[str, Any] = field(default_factory=dict)  # further arguments of `add_argument`

    def add_to(self, parser: Any) -> None:
        """Add this argument to an argparse parser or argument group."""
        if self.name.startswith("--") and not (self.metavar or self.choices):
            parser.add_argument(self.name, action="store_true", help=self.about)
            return
        about = self.about + ("; may repeat" if self.repeats else "")
        default = self.default
        if self.choices:
            default = self.choices[0]
        elif self.repeats:
            default = []
        about += "; default: %(default)s" if default and not self.choices else ""
        how: dict[str, Any] = {"action": "append" if self.repeats else "store", "default": default, "help": about}
        how |= {"required": self.is_required} if self.name.startswith("--") else {}
        how |= {"choices": self.choices} if self.choices else {"metavar": self.metavar, "type": self.parse}
        parser.add_argument(self.name, **how, **self.more)


@dataclass(frozen=True)
class Command:
    """A command of the command line."""

    name: str
    function: str  # function that it calls with the parsed arguments, as 'module:function' in this folder
    about: str = ""  # its help, one sentence
    example: str = ""  # arguments of an example
    options: Sequence[Option] = ()  # its arguments and options
    interrupted: str = "stopped."  # message that Ctrl-C prints
    lasts: bool = True  # whether it continues when its output is closed
    presets: Mapping[str, Any] = field(default_factory=dict)  # further attributes of the parsed arguments

    def add_to(self, commands: Any) -> None:
        """Add this command, with its options, to argparse's subparsers ``commands``."""
        epilog = f"{EXAMPLE}pairmill {self.name} {self.example}".rstrip()
        parser = commands.add_parser(self.name, description=self.about, epilog=epilog, allow_abbrev=False)
        groups = {"": parser}
        for each in self.options:
            if each.group not in groups:
                is_either = each.group == EITHER
                made = parser.add_mutually_exclusive_group() if is_either else parser.add_argument_group(each.group)
                groups[each.group] = made
            each.add_to(groups[each.group])
        lake = os.environ.get("PAIRMILL_LAKE") or "lake"
        parser.set_defaults(command=self.function, parser=parser, interrupted=self.interrupted, lasts=self.lasts,
                            lake=lake, **self.presets)  # fmt: skip


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
        """Parse the command line; exit with status 2 and one line with the remedy for an unknown argument."""
        found, extra = self.parse_known_args(args, namespace)
        if extra:
            found.parser.error(_unknown(extra[0], found.parser))
        return found

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raise ArgumentError for a value that is not among the action's choices, with the nearest of them."""
        if action.choices is None or value in action.choices:
            return

        from pairmill.catalog.terms.error import did_you_mean  # --help needs nothing of the catalog

        choices = [str(choice) for choice in action.choices]
        remedy = did_you_mean(str(value), choices) or f"there are {', '.join(choices)}."
        raise argparse.ArgumentError(action, f"there is no '{value}'; {remedy}")


def _unknown(given: str, parser: argparse.ArgumentParser) -> str:
    """Return the error message for an argument that ``parser`` does not have."""
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
    """Argparse action of ``--version``: print the installed version and exit."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Print ``pairmill VERSION`` and exit with status 0."""
        from importlib.metadata import version

        print(f"pairmill {version('pairmill')}")
        parser.exit()
