"""Run a recipe from Python, as `pairmill run` does; in a Jupyter notebook with a bar that shows its progress."""

import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.api.opened_lake import open_lake
from pairmill.flows.api.pair_dataset import PairDataset
from pairmill.flows.run.progress_text import progress_text
from pairmill.flows.run.run_recipe import curate_anew, last_result, request_run
from pairmill.flows.run.settings import Compute, load_recipe, with_resolved_paths
from pairmill.tasks.run.place.progress import Progress, ShowProgress, not_shown

if TYPE_CHECKING:  # torch, 3 s
    from pairmill.flows.preflight.preflight import Preflight
    from pairmill.tasks.run.session import Session

EVERY_SECONDS = 0.5  # between two drawings of a notebook's bar
Places = Sequence[str | os.PathLike[str]] | str | os.PathLike[str]


@dataclass(frozen=True)
class RunResult:
    """Result of a run.

    Attributes:
        dataset: The published version, of a lake that is open for reading.
        notes: Warnings and advice of the run, a line each.
        is_new: Whether it published a new version; False if the content equals the newest one's.
        report: Path of the version's HTML report.
        demo_weights: Small shipped models that the run used: they show the mechanics, not quality.
    """

    dataset: PairDataset
    notes: list[str]
    is_new: bool
    report: str
    demo_weights: tuple[str, ...]


def load(name_or_path: str | os.PathLike[str], models: str = "recipe") -> Recipe:
    """Load a shipped recipe by name ('folder', '30m' …), or a recipe from a YAML file; `Recipe.with_` changes settings.

    ``models='demo'`` replaces its models by the small ones that ship with Pairmill: they show the mechanics, not
    quality. Raises BadRecipe.
    """
    return load_recipe(os.fspath(name_or_path), {}, models)


def run(
    recipe: Recipe | str,
    sources: Places = (),
    lake: str | os.PathLike[str] = "lake",
    compute: Compute | None = None,
    progress: ShowProgress | None = None,
    retry: str = "",
) -> RunResult:
    """Curate ``sources`` by a recipe into ``lake``, from documents to a published version.

    A second run computes only missing rows, and nothing if nothing has changed. Run it again after a kill.

    Args:
        recipe: A recipe, or the name or path of one.
        sources: Folders, files, s3:// or https:// addresses; by default the recipe's own.
        lake: A folder, made if it is missing, or a lake.yaml.
        compute: Workers, devices and cluster; by default this machine's.
        progress: Called with a `Progress` (step, done, total, unit) at each start of a step, and now and then; None
            draws a bar in a Jupyter notebook.
        retry: Quarantine reason whose items are tried again first; the recipe's own sources are then not read.

    Raises:
        PairmillError: A setting, model or source is not usable; the message names the remedy. LeaseHeld if another
            process writes to the lake.
    """
    read, places, placement = _read(recipe, sources, compute)
    request, place = request_run(read, places, placement, [], retry), os.fspath(lake)

    def begin(session: "Session") -> None:
        session.progress = progress or show_progress()

    found = last_result(request, place)
    if found is None:
        found = curate_anew(request, place, placement, [], lambda step, session: step(session), begin)
    outcome = found.outcome
    version = open_lake(place).dataset(str(outcome.dataset))
    return RunResult(version, found.notes, found.is_new, outcome.report, tuple(outcome.demo_weights))


def preflight(
    recipe: Recipe | str,
    sources: Places = (),
    lake: str | os.PathLike[str] = "lake",
    compute: Compute | None = None,
    sample: int = 5000,
    progress: ShowProgress = not_shown,
) -> "Preflight":
    """Run a sample of ``sources`` in a temporary lake, and forecast yield and cost of a run into ``lake``.

    Args:
        recipe: A recipe, or the name or path of one.
        sources: Folders, files, s3:// or https:// addresses; by default the recipe's own.
        lake: The lake of the run, which is only read, and may be missing.
        compute: Workers, devices and cluster; by default this machine's.
        sample: Pictures to run, about.
        progress: As for `run`.

    Raises:
        PairmillError: A setting, model or source is not usable, or nothing in the sources is new to the lake.
    """
    from pairmill.flows.preflight.preflight import preflight as forecast

    read, places, placement = _read(recipe, sources, compute)
    return forecast(read, places, os.fspath(lake), placement, sample, progress)


def _read(recipe: Recipe | str, sources: Places, compute: Compute | None) -> tuple[Recipe, list[str], Compute]:
    """Convert a caller's arguments to a recipe with absolute paths, sources as texts, and settings of compute."""
    read = load(recipe) if isinstance(recipe, str) else with_resolved_paths(recipe)
    places = [sources] if isinstance(sources, str | os.PathLike) else sources
    return read, [os.fspath(each) for each in places], compute or Compute()  # pyright: ignore[reportCallIssue]


def show_progress() -> ShowProgress:
    """Return a callback that draws a run's progress below the cell; one that draws nothing outside of a notebook."""
    shell = sys.modules["IPython"].get_ipython() if "IPython" in sys.modules else None
    return NotebookBar() if getattr(shell, "kernel", None) else not_shown


class NotebookBar:
    """Callback of a run that draws one bar, that of the current step, and redraws it every EVERY_SECONDS."""

    def __init__(self) -> None:
        from IPython.display import HTML, display  # pyright: ignore[reportMissingImports]

        self._html: Any = HTML
        self._handle: Any = display(HTML(""), display_id=True)
        self._step, self._began, self._shown_at = "", 0.0, 0.0

    def __call__(self, progress: Progress) -> None:
        """Draw the progress of a step."""
        now = time.monotonic()
        if progress.is_begin or progress.step != self._step:
            self._step, self._began, self._shown_at = progress.step, now, 0.0
        if progress.is_end or now - self._shown_at >= EVERY_SECONDS:
            self._shown_at = now
            text = escape(f"{progress.step}: {progress_text(progress, now - self._began)}".rstrip(": "))
            bar = f'<progress max="{max(1, progress.total)}" value="{progress.done}"></progress>'
            self._handle.update(self._html(f"{bar} {text}"))
