"""Try a changed rule: cut twice without publishing, by the version's recipe and with the rule changed, and compare."""

from dataclasses import dataclass, replace

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.facts_tables import SCORERS
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.terms.error import BadPredicate
from pairmill.catalog.terms.score import Stage


@dataclass(frozen=True)
class Trial:
    """Result of a trial over all current images of the lake.

    ``kept_before`` and ``kept_after``: images kept by both cuts. ``moved``: (dropped by before, dropped by after,
    number of images), '' for kept, most frequent first; images that both cuts decide alike are left out.
    """

    images: int
    kept_before: int
    kept_after: int
    moved: tuple[tuple[str, str, int], ...]


def cut_plan(lake: Lake, dataset: Dataset) -> Plan:
    """Return the plan that the version was cut by, with the scorers that fill a table which several scorers fill."""
    plan = plan_of(lake, dataset)
    rows = lake.query("SELECT name, digest FROM scorers WHERE list_contains(?, digest)", (dataset.scorers,))
    return replace(plan, scorers={**plan.scorers, **{name: digest for name, digest in rows if name in SCORERS}})


def with_rule(plan: Plan, kind: str, name: str, keep: str) -> Plan:
    """Return the plan with the predicate of the rule ``name`` on ``kind`` ('image', 'sentence') replaced.

    Raises:
        BadPredicate: There is no such rule, ``keep`` is no predicate, or it reads a score that the version's recipe
            does not compute or computes at a later stage than the rule's own scores.
    """
    old = next((check for check in plan.checks(kind) if check.name == name), None)
    if old is None:
        raise BadPredicate(f"the recipe has no rule '{name}' on {kind}s.")
    tables = plan.image_tables if kind == "image" else plan.sentence_tables
    home = {column: table for table in tables for column in table.columns}
    columns = tuple(sorted(predicate.check(name, keep, {c: table.columns[c] for c, table in home.items()})))
    homes = {home[column] for column in columns}
    stage = max((table.stage for table in homes), default=Stage.INGEST)
    if stage != old.stage:
        raise BadPredicate(f"rule '{name}': a score of another stage is read; change the recipe and run it instead.")
    rule = old.rule.model_copy(update={"keep": keep, "calibrate": None})
    form = predicate.normal_form(name, keep)
    changed = Check(name, form, columns, tuple(sorted(t.table for t in homes)), stage, rule)
    checks = tuple(changed if check is old else check for check in plan.checks(kind))
    return replace(plan, **{f"{kind}_checks": checks})


def trial_cut(lake: Lake, plan: Plan, changed: Plan) -> Trial:
    """Cut by both plans over the lake's current facts and compare; nothing is published, and no model is asked.

    An image whose generated texts are unknown counts as passing, as in a wave. At 1M images two cuts take 2.4 s; the
    first trial after a commit also builds the facts.
    """
    cut(lake, plan)
    lake.execute("CREATE OR REPLACE TEMP TABLE trial_before AS SELECT image_id, dropped_by FROM cut_images")
    cut(lake, changed)
    both = "trial_before b JOIN cut_images a USING (image_id)"
    rows = lake.query(
        f"SELECT b.dropped_by, a.dropped_by, count(*) AS n FROM {both} GROUP BY ALL ORDER BY n DESC, 1, 2"
    )
    lake.execute("DROP TABLE trial_before")
    images = sum(n for _, _, n in rows)
    before = sum(n for fate, _, n in rows if fate == "")
    after = sum(n for _, fate, n in rows if fate == "")
    return Trial(images, before, after, tuple(row for row in rows if row[0] != row[1]))
