"""Query the contents of a dataset version's report: aggregates and bounded samples only."""

import json
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.score_tables import undeclared
from pairmill.catalog.pending.eligible import current_scores
from pairmill.catalog.pending.training import SURVIVORS
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.recipe.plan import CAPTION_TABLES, Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.declared import declared, scores_of
from pairmill.catalog.terms.score import Stage

CLUSTERS_SHOWN = 240
EXAMPLES = 3
# Rows of the version's scorers that it read.
KNOWN = "scorer IN (SELECT unnest(scorers) FROM datasets WHERE name = ? AND version = ?) AND commit <= ?"


def plan_of(lake: Lake, dataset: Dataset) -> Plan:
    """Compile the plan that the version was cut by: its stored recipe, and its scorers by the table they filled."""
    recipe = Recipe.model_validate(json.loads(dataset.recipe))
    sql = 'SELECT DISTINCT "table", scorer FROM partitions WHERE list_contains(?, scorer) ORDER BY ALL'
    plan = compile_plan(recipe, dict(lake.query(sql, (dataset.scorers,))), (*declared(), *undeclared(lake)))
    sql = "SELECT position, scorer, similarity_scorer FROM dataset_captioners WHERE dataset = ? AND version = ?"
    for place, *digests in lake.query(f"{sql} ORDER BY position", (dataset.name, dataset.version)):
        for table, digest in zip(CAPTION_TABLES, digests, strict=True):
            plan = plan.with_scorer(plan.of_captioner(table, place), digest)
    return plan


def scorers(lake: Lake, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the scorers of the version as dictionaries: digest, name, version, settings, model, libraries."""
    sql = """SELECT digest, name, version, settings, model, libraries FROM scorers WHERE digest
        IN (SELECT unnest(scorers) FROM datasets WHERE name = ? AND version = ?) ORDER BY "commit", name, digest"""
    return lake.rows(sql, (dataset.name, dataset.version))


def totals(lake: Lake, dataset: Dataset) -> dict[str, int]:
    """Return the numbers of ``documents`` and of ``quarantine`` rows in the lake when the version was cut."""
    parts = ", ".join(f"(SELECT count(*) FROM {t} WHERE commit <= ?) AS {t}" for t in ("documents", "quarantine"))
    return lake.rows(f"SELECT {parts}", (dataset.commit,) * 2)[0]


def cluster_sizes(lake: Lake, dataset: Dataset, plan: Plan) -> tuple[int, list[tuple[int, int, int]]]:
    """Return (number of clusters, [(rank, images before balance, images after)]), largest cluster first.

    At most CLUSTERS_SHOWN clusters, evenly over the ranks. Images before balance: kept, or dropped by it or later.
    """
    sql = """SELECT rule FROM funnel WHERE dataset = ? AND version = ? AND kind = 'image' AND position >= (SELECT
        coalesce(max(position), 0) FROM funnel WHERE dataset = ? AND version = ? AND rule = 'balance')"""
    from_balance_on = lake.query(sql, (dataset.name, dataset.version) * 2)
    reached = ["", *(rule for (rule,) in from_balance_on)]
    scorer = dataset.scorers_by_name(lake).get(SURVIVORS.clusters, "")
    clusters = "SELECT key AS sha256, cluster FROM clusters WHERE scorer = ? AND commit <= ?"
    rows = lake.query(
        f"""WITH sizes AS (SELECT c.cluster, count(DISTINCT item_id) AS before,
                count(DISTINCT item_id) FILTER (d.dropped_by <> 'balance') AS after
            FROM (SELECT item_id, dropped_by FROM decisions WHERE dataset = ? AND version = ? AND kind = 'image'
                AND dropped_by IN (SELECT unnest(?))) d
            JOIN images i ON i.image_id = d.item_id JOIN ({clusters}) c ON c.sha256 = i.sha256 GROUP BY c.cluster),
        ranked AS (SELECT *, row_number() OVER (ORDER BY before DESC, after DESC, cluster) AS rank,
            count(*) OVER () AS n FROM sizes)
        SELECT n, rank, before, after FROM ranked WHERE (rank - 1) % ((n + ? - 1) // ?) = 0 ORDER BY rank""",
        (dataset.name, dataset.version, reached, scorer, dataset.commit, CLUSTERS_SHOWN, CLUSTERS_SHOWN),
    )
    return (rows[0][0] if rows else 0), [row[1:] for row in rows]


def duplicates(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Return duplicate ``edges`` with their counts by kind, and the numbers ``groups``, ``members`` and ``largest``."""
    sql = f"""SELECT kind, count(DISTINCT (a, b)) AS edges, count(DISTINCT sha256) AS pictures FROM (SELECT kind, a, b,
        unnest([a, b]) AS sha256 FROM duplicate_edges WHERE a IS NOT NULL AND {KNOWN}) GROUP BY kind ORDER BY kind"""
    edges = lake.rows(sql, (dataset.name, dataset.version, dataset.commit))
    return {"edges": edges, **_groups(lake, dataset, "image_groups")}


def sentence_groups(lake: Lake, dataset: Dataset) -> dict[str, Any]:
    """Return the numbers of ``groups`` of duplicate sentences, of their ``members``, and of the ``largest`` group's."""
    return _groups(lake, dataset, "sentence_groups")


def _groups(lake: Lake, dataset: Dataset, table: str) -> dict[str, Any]:
    """Count ``groups``, their ``members`` and the ``largest``, in the newest grouping up to the version's commit."""
    sql = f"""SELECT count(DISTINCT group_id) AS groups, count(*) AS members, max(group_size) AS largest FROM
        {table} WHERE {KNOWN} AND commit = (SELECT max(commit) FROM {table} WHERE {KNOWN})"""
    return lake.rows(sql, (dataset.name, dataset.version, dataset.commit) * 2)[0]


def generated(lake: Lake, dataset: Dataset, plan: Plan) -> list[dict[str, Any]]:
    """Count captions and fused texts of the version's pairs by status, with their total tokens and seconds.

    Captions are counted by captioner if there are several.
    """
    found = []
    for score in scores_of("image", plan.scores):
        status = next((column.name for column in score.columns if column.rule_name.endswith("_status")), "")
        if not status or score.stage < Stage.CAPTION:
            continue
        table, has_several = score.table, score.table == "captions" and len(plan.recipe.captioned_by) > 1
        kind = f"'{table} by ' || captioner" if has_several else f"'{table}'"
        sql = f"""SELECT {kind} AS kind, {status} AS status, count(*) AS n, sum(n_tokens) AS tokens, sum(seconds) AS
            seconds FROM {current_scores(plan, table, "sha256", dataset.commit)} WHERE sha256 IN (SELECT sha256 FROM
            pairs WHERE dataset = ? AND version = ?) GROUP BY ALL ORDER BY n DESC, kind, {status}"""
        found += lake.rows(sql, (dataset.name, dataset.version))
    return found


def quarantine(lake: Lake, dataset: Dataset) -> list[dict[str, Any]]:
    """Count the quarantine rows when the version was cut, by reason and stage, most frequent first, with EXAMPLES."""
    sql = f"""SELECT reason, stage, count(*) AS n,
        min({{'item': left(item, 200), 'detail': left(detail, 200)}}, {EXAMPLES}) AS examples
        FROM quarantine WHERE commit <= ? GROUP BY reason, stage ORDER BY n DESC, reason, stage"""
    return lake.rows(sql, (dataset.commit,))


def steps(lake: Lake, dataset: Dataset) -> list[dict[str, Any]]:
    """Return the output of each step up to this version, summed over all runs: worker seconds, bytes, rows by table.

    A job that fills several tables records its seconds in each partition, so each (shard, seconds) is counted once.
    """
    sql = """SELECT step, min(first) AS first, list({'name': t, 'rows': n} ORDER BY t) AS tables, sum(bytes) AS bytes
        FROM (SELECT step, "table" AS t, min("commit") AS first, sum(rows) AS n, sum(bytes) AS bytes FROM partitions
        JOIN (SELECT "commit", step FROM commits WHERE "commit" <= ?) USING ("commit") GROUP BY step, t)
        GROUP BY step ORDER BY first, step"""
    tables = lake.rows(sql, (dataset.commit,))
    sql = """SELECT step, sum(seconds) FROM (SELECT DISTINCT "commit", shard, seconds FROM partitions WHERE commit <= ?)
        JOIN commits USING ("commit") GROUP BY step"""
    spent = lake.query(sql, (dataset.commit,))
    seconds = dict(spent)
    return [{**row, "seconds": seconds.get(row["step"], 0.0)} for row in tables]
