"""Sum what generated texts took, by run and step: rows, tokens, seconds, retries, cost."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake


@dataclass(frozen=True)
class StepUsage:
    """What one step of one run took to generate. ``seconds`` are those of its replicas, added up; ``cost`` is by the
    prices that the run was told, 0 without any."""

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
        """Tokens generated a second of one replica, 0 where no time is on record."""
        return self.tokens / self.seconds if self.seconds else 0.0


def by_step(lake: Lake, upto: int | None = None, run_ids: tuple[str, ...] = ()) -> list[StepUsage]:
    """Sum by run and step, in the order of their first commit; of commits up to ``upto``, of these runs if any are
    named."""
    found = lake.query(
        """SELECT u.run_id, c.step, sum(u.rows), sum(u.seconds), sum(u.prompt_tokens), sum(u.tokens),
            sum(u.discarded_tokens), sum(u.retries), sum(u.cost)
        FROM usage u JOIN commits c ON c."commit" = u."commit"
        WHERE (? IS NULL OR u."commit" <= ?) AND (len(?) = 0 OR list_contains(?, u.run_id))
        GROUP BY u.run_id, c.step ORDER BY min(u."commit")""",
        (upto, upto, list(run_ids), list(run_ids)),
    )
    return [
        StepUsage(run, step, int(rows), float(seconds), *(int(n) for n in counts), cost=float(cost))
        for run, step, rows, seconds, *counts, cost in found
    ]
