"""Declare what the checks of a machine find, and run them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from pairmill.flows.user_error import user_message

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe

State = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Finding:
    """One line of the answer. ``fail`` stops a run, ``warn`` may stop or slow it; ``remedy`` says what to do."""

    state: State
    text: str
    remedy: str = ""


@dataclass(frozen=True)
class Patient:
    """What is examined besides this machine: a lake, and a recipe if one is named."""

    lake: str
    recipe: Recipe | None = None


def run_checks(checks: Mapping[str, Callable[[Any], Iterator[Finding]]], of: Any) -> Iterator[tuple[str, Finding]]:
    """Yield each finding with the name of its check: an error of one is a finding, and the others still run."""
    for name, check in checks.items():
        try:
            for finding in check(of):
                yield name, finding
        except Exception as error:
            yield name, Finding("fail", user_message(error) or f"{type(error).__name__}: {error}")
