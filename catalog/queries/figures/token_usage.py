"""Sum the cost of generated texts by run and step: rows, tokens, seconds, retries, price."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake


@dataclass(frozen=True)
class StepUsage:
    """Token usage of one step of one run.

    ``seconds`` are summed over replicas. ``cost`` uses the prices configured for the run, 0 without prices.
    """

    run_id: str
    step: str
    rows: int
    seconds: float
    prompt_tokens: int
    tokens: int
    discarded_tokens: int
    retries: int
    cost: float

    @property
    def tokens_a_second(self) -> float:
        """Tokens generated per second by one replica; 0 if no time is recorded."""
        return self.tokens / self.seconds if self.seconds else 0.0


def by_step(lake: Lake, upto: int | None = None, run_ids: tuple[str, ...] = ()) -> list[StepUsage]:
    """Sum usage by run and step, in the order of their first commit.

    Restricted to commits up to ``upto``, and to ``run_ids`` if any are given.
    """
    mine = "AND list_contains(?, u.run_id)" if run_ids else ""
    found = lake.query(
        f"""SELECT u.run_id, c.step, sum(u.rows), sum(u.seconds), sum(u.prompt_tokens), sum(u.tokens),
            sum(u.discarded_tokens), sum(u.retries), sum(u.cost)
        FROM usage u JOIN commits c ON c."commit" = u."commit"
        WHERE (? IS NULL OR u."commit" <= ?) {mine}
        GROUP BY u.run_id, c.step ORDER BY min(u."commit")""",
        (upto, upto, *([list(run_ids)] if run_ids else [])),
    )
    return [
        StepUsage(run, step, int(rows), float(seconds), *(int(n) for n in counts), cost=float(cost))
        for run, step, rows, seconds, *counts, cost in found
    ]
