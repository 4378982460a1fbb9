"""Declare the findings of a machine's checks, and run checks."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pairmill.flows.user_error import user_message

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One finding of a check. ``fail`` stops a run, ``warn`` may stop or slow it; ``remedy`` says how to mend it."""

    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Patient:
    """Subject of the checks besides this machine: a lake's location, and a recipe, None without one."""

    lake: str
    recipe: "Recipe | None" = None


def run_checks(checks: Mapping[str, Callable[[Any], Iterator[Finding]]], of: Any) -> Iterator[tuple[str, Finding]]:
    """Run the checks on ``of``; yield (name of the check, finding). An error in a check becomes a finding too."""
    for name, check in checks.items():
        try:
            for finding in check(of):
                yield name, finding
        except Exception as error:
            yield name, Finding("fail", user_message(error) or f"{type(error).__name__}: {error}")
