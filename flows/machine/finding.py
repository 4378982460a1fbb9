"""Declare a check of `pairmill doctor`, and what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

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


@dataclass(frozen=True)
class Examination:
    """A named check: it yields its findings, and imports what it needs when it is called."""

    name: str
    examine: Callable[[Patient], Iterator[Finding]]
