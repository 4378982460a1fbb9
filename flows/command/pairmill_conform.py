"""Implement `pairmill conform`: test a recipe's sentence rules on texts that RealSyn released."""

from argparse import Namespace

from pairmill.catalog.queries.export.released_texts import released_texts
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.terms.controls import visible
from pairmill.flows.command.option_types import overrides
from pairmill.flows.command.terminal import console, shown, table
from pairmill.flows.run.settings import load_recipe, notes_on

SHOWN = 100  # characters of an example


def conform(args: Namespace) -> int:
    """Print how many of the released texts each rule drops, with examples; return 1 if any rule drops one."""
    from pairmill.tasks.measure.conform import conform as tested

    given = overrides(args.set)
    plan = compile_plan(load_recipe(args.recipe, given, args.models))
    screen = console()
    with screen.status("reading texts") as status:
        texts = released_texts(args.file, args.rows)
        done = 0

        def advance(n: int) -> None:
            nonlocal done
            done += n
            status.update(f"scored {done:,} of {len(texts):,} texts")

        found = tested(plan, texts, advance)
    title = f"{len(texts):,} distinct texts of {args.file}, by the rules of {plan.recipe.name}"
    rules = table(visible(title), ["rule"], ["dropped", "of all"], ["keeps"])
    for each in found:
        n = each.dropped
        counts = ("·", "not tested") if n is None else (f"{n:,}", f"{n / len(texts):.2%}")
        rules.add_row(each.rule, *counts, shown(each.keep))
    screen.print(rules)
    for each in found:
        for text in each.examples:
            screen.print(shown(f"{each.rule}: {text[:SHOWN]}"))
    for note in notes_on(plan.recipe, args.recipe, given, args.models):
        screen.print(shown(f"note: {note}"))
    return int(any(each.dropped for each in found))
