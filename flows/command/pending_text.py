"""Print the pending work of a recipe as a table, for `pairmill run --dry-run`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.command.terminal import shown, table
from pairmill.flows.run.nothing_to_do import notes_if_nothing_is_pending
from pairmill.flows.run.progress_text import unit_of
from pairmill.flows.run.run_inputs import inputs_digest

if TYPE_CHECKING:
    from pairmill.flows.run.survey import Pending


def print_pending(lake: Lake, recipe: Recipe, sources: list[str], screen: Console) -> None:
    """Print the pending work of a recipe, counted by a survey unless nothing has changed since a completed run."""
    title = f"\npending for recipe {recipe.name}"
    inputs = inputs_digest(recipe, sources)
    notes = notes_if_nothing_is_pending(lake, recipe, inputs)
    found, notes = ([], notes) if notes is not None else _survey(lake, recipe, sources)
    pending = table(title, ["step"], ["pending"], ["", ""])
    for each in found:
        number = f"{each.rows:,}" if each.rows else "·"
        pending.add_row(shown(each.work), number, unit_of(each.rows, each.unit) if each.rows else "", shown(each.due))
    screen.print(pending if found else escape(title))
    if not any(each.rows for each in found):
        screen.print("nothing is pending: a run would do no work.")
    for note in notes:
        screen.print(f"[yellow]note:[/] {shown(note)}")


def _survey(lake: Lake, recipe: Recipe, sources: list[str]) -> "tuple[list[Pending], Sequence[str]]":
    """Count the pending work of each step; return the counts and the notes."""
    from pairmill.catalog.lake.without_pandas import work_without_pandas
    from pairmill.catalog.write.import_scores import with_imported
    from pairmill.flows.run.settings import resolve_source
    from pairmill.flows.run.survey import survey  # all steps, 1 s
    from pairmill.tasks.run.place import identity

    work_without_pandas()
    plan, _ = identity.with_scorers(compile_plan(recipe))
    seen = survey(lake, with_imported(lake, plan), [resolve_source(uri) for uri in sources])
    return seen.found, seen.notes
