"""Cut by a version's plan and by a changed one without publishing; count missing scores; find a rule's models."""

from dataclasses import dataclass, replace

from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.edits import with_kept
from pairmill.catalog.cut.facts_tables import SCORERS
from pairmill.catalog.cut.pending_pairs import pending_candidates
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.worklist import pending_images, pending_sentences
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.terms.score import RUN_AT


@dataclass(frozen=True)
class MissingScore:
    """Number ``n`` of items that pass the rules so far and lack ``score``, and the work that computing it takes.

    ``kind`` is 'image', 'sentence' or 'pair'; of pairs the images are counted. ``seconds`` is the time for all ``n``,
    at the mean time of the lake's rows of this score; None if the lake has no row.
    """

    kind: str
    score: str
    n: int
    seconds: float | None

    def __str__(self) -> str:
        return f"{self.n:,} {self.kind}s that the rules let through have no {self.score} yet"


def cut_plan(lake: Lake, dataset: Dataset) -> Plan:
    """Compile the version's recipe into a plan with the scorer digests that the version was published with.

    Its rules spare the pictures that people keep now.
    """
    plan, stored = plan_of(lake, dataset), dataset.scorers_by_name(lake)
    plan = replace(plan, scorers={**plan.scorers, **{name: stored[name] for name in SCORERS if name in stored}})
    return with_kept(lake, plan)


def fates_by_both(lake: Lake, plan: Plan, changed: Plan) -> list[tuple[str, str, int]]:
    """Cut by both plans over the lake's current facts; return (dropped by before, dropped by after, images).

    '' stands for kept; most frequent first. Nothing is published, and no model is loaded. An image whose generated
    texts are unknown counts as passing, as in a wave. The cut by ``changed`` is left in the connection's tables. At 1M
    images two cuts take 2.4 s, less if they ask alike (`cut`); the first trial after a commit also builds the facts.
    """
    cut(lake, plan)
    lake.execute("CREATE OR REPLACE TEMP TABLE trial_before AS SELECT image_id, dropped_by FROM cut_images")
    cut(lake, changed)
    both = "trial_before b JOIN cut_images a USING (image_id)"
    rows = lake.query(f"SELECT b.dropped_by, a.dropped_by, count(*) FROM {both} GROUP BY ALL ORDER BY 3 DESC, 1, 2")
    lake.execute("DROP TABLE trial_before")
    return rows


def moved_since(lake: Lake, dataset: Dataset) -> list[tuple[str, str, int]]:
    """Return (rule in the version, rule in the last cut, images) where these differ, most frequent first."""
    return lake.query(f"""SELECT d.dropped_by, c.dropped_by, count(*) AS n FROM cut_images c
        JOIN (SELECT item_id AS image_id, dropped_by FROM decisions WHERE {dataset.where}) d USING (image_id)
        WHERE d.dropped_by <> c.dropped_by GROUP BY ALL ORDER BY n DESC, 1, 2""")


def models_behind(lake: Lake, dataset: Dataset, check: Check) -> dict[str, str]:
    """Return name -> digest of the scorers with a model that the rule's scores depend on.

    Scorers without a model, such as clusters, say nothing of the scores' scale. A name that several share is left out.
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


def missing_scores(lake: Lake, plan: Plan) -> list[MissingScore]:
    """Count, for each declared score in the order of the plan, the items that pass the rules so far and lack it."""
    found = []
    with lake.one_snapshot_if_small():
        for score in plan.scores:
            if not score.op or score.stage not in RUN_AT[score.of]:
                continue
            if score.of == "pair":
                rounds = pending_candidates(lake, plan, score)
            else:
                pending = pending_images if score.of == "image" else pending_sentences
                rounds = pending(lake, plan, [score.table], score.stage)
            if n := sum(len(item.keys) for items in rounds for item in items):
                found.append(MissingScore(score.of, score.name, n, _seconds(lake, score.table, n)))
    return found


def missing_texts(lake: Lake, plan: Plan) -> list[MissingScore]:
    """Count the images that the last cut may keep and that lack generated texts, as one element; [] if none does."""
    n = late_cut.count_unknown(lake)
    tables = ["captions"] * bool(plan.recipe.captioned_by) + ["synthetic"] * (plan.recipe.fuse is not None)
    seconds = [_seconds(lake, table, n) for table in tables]
    known = [each for each in seconds if each is not None]
    return [MissingScore("image", "generated text", n, sum(known) if known else None)] if n else []


def _seconds(lake: Lake, table: str, n: int) -> float | None:
    """Return the seconds of ``n`` rows of ``table`` at the mean of its partitions, None without one."""
    sql = 'SELECT sum(seconds) / nullif(sum(rows), 0) FROM partitions WHERE "table" = ?'
    mean = lake.query(sql, (table,))[0][0]
    return None if mean is None else mean * n
