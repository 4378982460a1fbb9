"""Convert the command line to the parameters of a flow that a Prefect server stores."""

from argparse import Namespace
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.secrets import has_secret, without_secrets
from pairmill.flows.command.option_types import overrides
from pairmill.flows.run.settings import resolve_source


def parameters(args: Namespace) -> dict:
    """Return the flow parameters that the command line sets; the deployment's apply otherwise."""
    assigned = [text.partition("=") for text in args.set]
    check_unsigned([*args.source, *(value for key, _, value in assigned if key.startswith("sources"))])
    given = {"sources": [_absolute(resolve_source(uri)) for uri in args.source], "overrides": overrides(args.set)}
    given |= {"models": args.models} if args.models != "recipe" else {}
    return {name: value for name, value in given.items() if value}


def check_unsigned(given: list[str]) -> None:
    """Raise PairmillError for an address with a user or a query: Prefect stores parameters and shows them."""
    for text in given:
        if has_secret(text):
            raise PairmillError(
                f"'{without_secrets(text)}?…': Prefect stores a run's parameters and shows them. Keep what may be a "
                "secret in a variable of the worker's environment and name that: --source '${NAME}' or "
                "'https://host/list?${NAME}'."
            )


def _absolute(uri: str) -> str:
    """Make a local source absolute, because the run has another working directory."""
    from pairmill.ops.read.source import split_format

    _, place = split_format(uri)
    return (
        uri if "://" in place or "${" in place else uri.removesuffix(place) + str(Path(place).expanduser().absolute())
    )
