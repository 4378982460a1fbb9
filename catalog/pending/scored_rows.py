"""Write SQL for the valid rows of one scorer: one row per key, with its input digest."""

from pairmill.catalog.recipe.plan import Plan


def scored_rows(plan: Plan, table: str, key: str, upto: int | None, only: str) -> str:
    """Return SQL for a score table's valid rows, one per key: this plan's scorer, the newest row if inputs changed.

    ``upto`` ignores rows of later commits, None for none. ``only`` is a condition on all rows, '' for none.
    """
    where = f"{_where(upto, only)} AND scorer = '{plan.scorer(table)}'"
    if not any(score.table == table and score.by_input for score in plan.scores):
        return f"(SELECT * FROM {table}{where})"
    # A key has a second row only in a shard that was processed twice. Ranking all rows took as long as the whole cut.
    once = (
        f"(SELECT shard FROM partitions WHERE \"table\" = '{table}' AND scorer = '{plan.scorer(table)}' AND rows > 0 "
        "GROUP BY shard HAVING count(*) = 1)"
    )
    return (
        f"(SELECT * FROM {table}{where} AND shard IN {once} UNION ALL SELECT * FROM {table}{where} AND shard NOT IN "
        f"{once} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY commit DESC) = 1)"
    )


def text_digest(text: str) -> str:
    """Return SQL for the input digest of a score computed from one text (SQL)."""
    return f"left(sha256({text}), 32)"


def _where(upto: int | None, only: str) -> str:
    """Return a WHERE clause for commits up to ``upto`` and the condition ``only``."""
    conditions = [] if upto is None else [f"commit <= {upto}"]
    conditions += [only] if only else []
    return f" WHERE {' AND '.join(conditions) or 'true'}"
