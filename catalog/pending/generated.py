"""Tell which generated texts of a picture are there: by this plan's scorers, of what they would be made from now.

What is missing, or was made by another scorer or from other texts, is *unknown*, and so is what rules say of it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from pairmill.catalog.pending.chosen_captions import captioner_rows
from pairmill.catalog.pending.eligible import current_scores, value_of
from pairmill.catalog.pending.scored_rows import text_digest
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.terms.score import Stage


def late_checks(plan: Plan) -> list[Check]:
    """Return the rules on generated texts, in their order."""
    return [check for check in plan.image_checks if check.stage >= Stage.CAPTION]


def without_unset_thresholds(plan: Plan) -> Plan:
    """Return the plan without rules on generated texts that wait for their number: nothing falls by these yet."""
    waiting = [
        check
        for check in late_checks(plan)
        if check.rule.calibrate is not None and check.rule.calibrate.threshold is None
    ]
    return replace(plan, image_checks=tuple(check for check in plan.image_checks if check not in waiting))


def fusion_digest(caption: str, tags: str, sentence: str) -> str:
    """SQL of the input digest of a text that is fused from these (SQL, none of them NULL)."""
    return text_digest(f"{caption} || chr(31) || array_to_string({tags}, chr(30)) || chr(31) || {sentence}")


def with_first_text(plan: Plan) -> str:
    """SQL of the ``sha256`` that have the first of their generated rows: of no other picture is anything known; '' of a
    recipe that generates nothing."""
    table = "captions" if plan.recipe.captioners else "tags" if plan.recipe.tags else ""
    by = ", ".join(f"'{digest}'" for digest in plan.made_by(table))
    return f"(SELECT sha256 FROM {table} WHERE scorer IN ({by}))" if table else ""


def states(plan: Plan, among: str) -> str:
    """SQL of (n, state, value) of ``among(n, sha256, sentence, …)``, which has the other columns that rules read.

    ``state``: the first rule on generated texts that a picture falls by; '' where it passes all and lacks none of its
    texts; NULL while that cannot be said. ``value``: what the rule read.
    """
    made = dict(_made(plan))
    columns = [
        f"made_{table.table}.{source} AS {name}"
        for table in plan.image_tables
        if table.table in made
        for name, source in table.source.items()
    ]
    flags = [f"made_{name}.sha256 IS NOT NULL AS has_{name}" for name in made]
    joins = " ".join(
        f"LEFT JOIN {rows} made_{name} ON made_{name}.sha256 = m.sha256{on}" for name, (rows, on) in made.items()
    )
    rules, values = [], []
    for check in late_checks(plan):
        unknown = f"WHEN {_lacking(name for name in made if name in check.tables)} THEN NULL"
        falls = f"WHEN ({check.keep}) IS NOT TRUE THEN"
        rules += [unknown, f"{falls} '{check.name}'"]
        values += [unknown, f"{falls} {value_of(check)}"]
    end = f"WHEN {_lacking(made)} THEN NULL ELSE '' END"
    return (
        f"SELECT n, CASE {' '.join(rules)} {end} AS state, CASE {' '.join(values)} {end} AS value FROM "
        f"(SELECT {', '.join(['m.*', *columns, *flags])} FROM {among} m {joins})"
    )


def _lacking(names: Iterable[str]) -> str:
    return " OR ".join(f"NOT has_{name}" for name in names)


def _made(plan: Plan) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield of each generated row that a kept picture is to have: its table (numbered where it is another captioner's
    than the chosen one's), and SQL of the plan's rows with what they must have been made from, of the rows before."""
    recipe = plan.recipe
    if recipe.captioners:
        yield _current(plan, "captions", "")
        for place in _other_captioners(plan):
            yield f"captions_{place + 1}", (captioner_rows(plan, place, "captions"), "")
        yield _current(plan, "caption_similarity", text_digest("made_captions.text"))
    if recipe.tags:
        yield _current(plan, "tags", "")
    if recipe.fuse:
        tags = "coalesce(made_tags.tags, [])" if recipe.tags else "[]::VARCHAR[]"
        caption = "CASE WHEN made_captions.status = 'ok' THEN made_captions.text ELSE '' END"
        yield _current(plan, "synthetic", fusion_digest(caption, tags, "m.sentence"))
        yield _current(plan, "synthetic_similarity", text_digest("made_synthetic.synthetic_text"))


def _other_captioners(plan: Plan) -> range:
    """Return the places of the captioners whose texts are asked for beside the chosen one: of the best one, all are
    there when it is chosen; of a mixture the drawn one alone is asked, unless the recipe says every."""
    asks_others = not plan.asks_one_captioner and plan.recipe.captions.choose != "best"
    return range(0 if plan.chooses_captions else 1, len(plan.recipe.captioners) if asks_others else 0)


def _current(plan: Plan, table: str, digest: str) -> tuple[str, tuple[str, str]]:
    on = f" AND made_{table}.input_digest = {digest}" if digest else ""
    return table, (current_scores(plan, table, "sha256"), on)
