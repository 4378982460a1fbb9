"""Run a command of the command line; only the command's own module imports ray, torch or prefect."""

import argparse
import gc
import importlib
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

NO_PAIRS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command of ``arguments``, by default the command line's; return its exit status.

    0: success. 1: an error that the user can fix. NO_PAIRS: a run that keeps no pair. 130: interrupted. Some commands
    have further statuses.
    """
    try:
        return _main(arguments)
    except KeyboardInterrupt:  # before the command began; `_run_command` reports a later one
        print("pairmill: stopped.", file=sys.stderr)
        return 130


def _main(arguments: Sequence[str] | None) -> int:
    """Parse the arguments, and run their command."""
    from pairmill.flows.command.commands import parser  # 0.1 CPU s, in which Ctrl-C is one line too

    if "_ARGCOMPLETE" in os.environ:  # a shell asks for completions
        from pairmill.flows.command.completion import complete

        complete(parser())
    given = sys.argv[1:] if arguments is None else list(arguments)
    if not given:
        parser().print_help()
        return 0
    args = parser().parse_args(given)
    signal.signal(signal.SIGTERM, _interrupt)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # under nohup the signal stays ignored
        signal.signal(signal.SIGHUP, _interrupt)
    if not args.lasts:
        return _run_command(args)
    from pairmill.flows.command.terminal import tolerate_closed_output

    with tolerate_closed_output():
        return _run_command(args)


def _run_command(args: argparse.Namespace) -> int:
    """Import and call the command. An error that the user can fix becomes one line on standard error."""
    module, function = args.command.split(":")  # module in this folder, function in it
    gc.set_threshold(50_000, 20, 20)  # the default of 700 scans half a million imported objects: 0.2 CPU s
    try:
        status = getattr(importlib.import_module(f"pairmill.flows.command.{module}"), function)(args)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return _interrupted(args)
    except Exception as error:
        from pairmill.catalog.terms.error import NoPairs, stop_behind
        from pairmill.flows.user_error import user_message

        if isinstance(stop_behind(error), KeyboardInterrupt):
            return _interrupted(args)
        if isinstance(error, BrokenPipeError) and not args.lasts:  # `pairmill sql … | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        if (line := user_message(error)) is None:
            raise
        print(f"pairmill: {line}", file=sys.stderr)
        return NO_PAIRS if isinstance(error, NoPairs) else 1


def _interrupted(args: argparse.Namespace) -> int:
    """End the workers at once (the pool would wait for their shards), print the command's message, and return 130."""
    from multiprocessing import active_children

    for child in active_children():
        child.terminate()
    print(f"pairmill: {args.interrupted}", file=sys.stderr)
    return 130


def _interrupt(*_: object) -> NoReturn:
    """Turn a signal into KeyboardInterrupt."""
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
