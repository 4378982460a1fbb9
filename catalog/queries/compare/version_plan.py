"""Read the plan of a version and the models behind it, and cut twice without publishing: by it and by a changed one."""

from dataclasses import replace

from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.facts_tables import SCORERS
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Check, Plan


def cut_plan(lake: Lake, dataset: Dataset) -> Plan:
    """Compile the plan that published the version, with its own digests for tables that several scorers share."""
    plan = plan_of(lake, dataset)
    rows = lake.query("SELECT name, digest FROM scorers WHERE list_contains(?, digest)", (dataset.scorers,))
    return replace(plan, scorers={**plan.scorers, **{name: digest for name, digest in rows if name in SCORERS}})


def fates_by_both(lake: Lake, plan: Plan, changed: Plan) -> list[tuple[str, str, int]]:
    """Cut by both plans over the lake's current facts; return (dropped by before, dropped by after, images).

    '' stands for kept; most frequent first. Nothing is published, and no model is loaded. An image whose generated
    texts are unknown counts as passing, as in a wave. The cut by ``changed`` is left in the connection's tables. At 1M
    images two cuts take 2.4 s; the first trial after a commit also builds the facts.
    """
    cut(lake, plan)
    lake.execute("CREATE OR REPLACE TEMP TABLE trial_before AS SELECT image_id, dropped_by FROM cut_images")
    cut(lake, changed)
    both = "trial_before b JOIN cut_images a USING (image_id)"
    rows = lake.query(
        f"SELECT b.dropped_by, a.dropped_by, count(*) AS n FROM {both} GROUP BY ALL ORDER BY n DESC, 1, 2"
    )
    lake.execute("DROP TABLE trial_before")
    return rows


def models_behind(lake: Lake, dataset: Dataset, check: Check) -> dict[str, str]:
    """Return the digests, by name, of the scorers that have a model and from which the rule's scores were made.

    Scorers without a model, such as clusters, differ between lakes and say nothing of the scores' scale. A name that
    several of them have is left out: of several captioners, none is named.
    """
    plan = plan_of(lake, dataset)
    asked = {digest for table in check.tables for digest in plan.made_by(table) if digest}
    rows = lake.query("SELECT digest, name, model, made_from FROM scorers")
    known = {digest: (name, model, made_from) for digest, name, model, made_from in rows}
    reached: set[str] = set()
    while asked := {each for each in asked - reached if each in known}:
        reached |= asked
        asked = {source for each in asked for source in known[each][2] or ()}
    found = sorted((known[each][0], each) for each in reached if known[each][1])
    names = [name for name, _ in found]
    return {name: digest for name, digest in found if names.count(name) == 1}


def stored_scorers(lake: Lake, dataset: Dataset) -> dict[str, str]:
    """Return name -> digest of the scorers that the version was cut by."""
    return dict(lake.query("SELECT name, digest FROM scorers WHERE list_contains(?, digest)", (dataset.scorers,)))
