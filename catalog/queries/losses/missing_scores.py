"""Count the scores that a plan needs and the lake lacks, with the seconds that making them takes."""

from dataclasses import dataclass

from pairmill.catalog.cut import late_cut
from pairmill.catalog.cut.pending_pairs import pending_candidates
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.worklist import pending_images, pending_sentences
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import RUN_AT


@dataclass(frozen=True)
class MissingScore:
    """``n`` items of ``kind`` that pass the rules so far and lack ``score``.

    ``kind`` is 'image', 'sentence' or 'pair', of which the images are counted.
    ``seconds`` is the work of all of them, at the mean of the lake's rows of this score; None if it has none.
    """

    kind: str
    score: str
    n: int
    seconds: float | None

    def __str__(self) -> str:
        return f"{self.n:,} {self.kind}s that the rules let through have no {self.score} yet"


def missing_scores(lake: Lake, plan: Plan) -> list[MissingScore]:
    """Return the declared scores that items let through by the rules lack, in the order of the plan."""
    with lake.one_snapshot_if_small():
        return _missing_scores(lake, plan)


def _missing_scores(lake: Lake, plan: Plan) -> list[MissingScore]:
    """Return the missing scores; the caller keeps the lake at one snapshot if that is cheaper."""
    found = []
    for score in plan.scores:
        if not score.op or score.stage not in RUN_AT[score.of]:
            continue
        if score.of == "pair":
            rounds = pending_candidates(lake, plan, score)
        else:
            pending = pending_images if score.of == "image" else pending_sentences
            rounds = pending(lake, plan, [score.table], score.stage)
        n = sum(len(item.keys) for items in rounds for item in items)
        if n:
            found.append(MissingScore(score.of, score.name, n, _seconds(lake, score.table, n)))
    return found


def missing_texts(lake: Lake, plan: Plan) -> list[MissingScore]:
    """Count the images that the last cut may keep and that lack generated texts; return [] if there are none."""
    n = late_cut.count_unknown(lake)
    tables = ["captions"] * bool(plan.recipe.captioners) + ["synthetic"] * (plan.recipe.fuse is not None)
    seconds = [_seconds(lake, table, n) for table in tables]
    known = [each for each in seconds if each is not None]
    return [MissingScore("image", "generated text", n, sum(known) if known else None)] if n else []


def _seconds(lake: Lake, table: str, n: int) -> float | None:
    """Return the seconds of ``n`` rows of ``table`` at the mean of its partitions, None without one."""
    sql = 'SELECT sum(seconds) / nullif(sum(rows), 0) FROM partitions WHERE "table" = ?'
    mean = lake.query(sql, (table,))[0][0]
    return None if mean is None else mean * n
