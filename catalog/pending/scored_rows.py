"""Write SQL for the rows that one scorer made: one valid row a key, with what it was made from."""

from pairmill.catalog.recipe.plan import Plan


def scored_rows(plan: Plan, table: str, key: str, upto: int | None, only: str) -> str:
    """SQL of the one valid row a key of a score table: this plan's scorer, the newest where inputs changed since.

    ``only`` is a condition that all rows fulfil, '' for none.
    """
    where = f"{_where(upto, only)} AND scorer = '{plan.scorer(table)}'"
    if not any(score.table == table and score.by_input for score in plan.scores):
        return f"(SELECT * FROM {table}{where})"
    # A key has a second row only in a shard that was worked on twice. Ranking all took as long as the whole cut.
    once = (
        f"(SELECT shard FROM partitions WHERE \"table\" = '{table}' AND scorer = '{plan.scorer(table)}' AND rows > 0 "
        "GROUP BY shard HAVING count(*) = 1)"
    )
    return (
        f"(SELECT * FROM {table}{where} AND shard IN {once} UNION ALL SELECT * FROM {table}{where} AND shard NOT IN "
        f"{once} QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY commit DESC) = 1)"
    )


def text_digest(text: str) -> str:
    """SQL of the input digest of what is made from one text (SQL)."""
    return f"left(sha256({text}), 32)"


def _where(upto: int | None, only: str) -> str:
    conditions = [] if upto is None else [f"commit <= {upto}"]
    conditions += [only] if only else []
    return f" WHERE {' AND '.join(conditions) or 'true'}"
