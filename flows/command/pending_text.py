"""Print the pending work of a recipe as a table, for `pairmill status` and `pairmill run --dry-run`."""

from rich.console import Console

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.command.terminal import shown, table


def print_pending(lake: Lake, recipe: Recipe, sources: list[str], screen: Console) -> None:
    """Print the pending work of a recipe, counted by a survey."""
    from pairmill.flows.settings import resolve_source
    from pairmill.flows.survey import survey  # all steps, 1 s
    from pairmill.tasks.run import identity

    plan, _ = identity.plan(recipe)
    seen = survey(lake, plan, [resolve_source(uri) for uri in sources])
    pending = table(f"\npending for recipe {recipe.name}", ["step"], ["rows", "work items"], [""])
    for each in seen.found:
        pending.add_row(shown(each.work), *(f"{n:,}" if n else "·" for n in (each.rows, each.items)), shown(each.due))
    screen.print(pending)
    if not any(each.rows for each in seen.found):
        screen.print("nothing is pending: a run would do no work.")
    for note in seen.notes:
        screen.print(f"[yellow]note:[/] {shown(note)}")
