"""Sample the sentences that tags are mined from, sum their noun counts, and load frozen tag words."""

from collections.abc import Sequence
from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SENTENCES, sampled
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.ids import text_id


@dataclass(frozen=True)
class Vocabulary:
    """Tag words in order, with one threshold each.

    ``thresholds`` is () if an image gets its nearest words unconditionally. ``pictures``: images eligible when the
    words were frozen. ``digest``: of words and thresholds, '' for a plain word list.
    """

    words: tuple[str, ...]
    thresholds: tuple[float, ...] = ()
    pictures: int = 0
    digest: str = ""


def sample_items(lake: Lake, plan: Plan, n: int, rows: int) -> list[WorkItem]:
    """Split the ``n`` eligible sentences with the smallest sha256(content || seed) into items of ``rows``, with texts.

    An item's name is a hash of its sentences, so a committed count stays valid if the run fails.
    """
    found = lake.query(
        f"SELECT s.key, c.text FROM ({sampled(plan, SENTENCES, n)}) s JOIN sentence_content c ON c.content = s.key "
        f"ORDER BY sha256(s.key || '{plan.recipe.seed}')"
    )
    parts = (found[start : start + rows] for start in range(0, len(found), rows))
    named = ((tuple(key for key, _ in part), [text for _, text in part]) for part in parts)
    return [WorkItem(text_id(*keys), keys, tables=("noun_counts",), inputs={"texts": texts}) for keys, texts in named]


def uncounted(lake: Lake, scorer: str, items: Sequence[WorkItem]) -> list[WorkItem]:
    """Return the items of `sample_items` whose nouns ``scorer`` has not counted yet."""
    sql = "SELECT DISTINCT shard FROM partitions WHERE \"table\" = 'noun_counts' AND scorer = ?"
    done = {shard for (shard,) in lake.query(sql, (scorer,))}
    return [item for item in items if item.shard not in done]


def counted(lake: Lake, scorer: str, items: Sequence[WorkItem], fewest: int) -> dict[tuple[str, bool], int]:
    """Return (phrase, is plural) -> number of sentences with it, summed over ``items``, if at least ``fewest``."""
    rows = lake.query(
        "SELECT phrase, is_plural, sum(n)::BIGINT FROM noun_counts WHERE scorer = ? "
        "AND shard IN (SELECT unnest(?::VARCHAR[])) GROUP BY ALL HAVING sum(n) >= ? ORDER BY ALL",
        (scorer, [item.shard for item in items], fewest),
    )
    return {(phrase, is_plural): n for phrase, is_plural, n in rows}


def frozen_words(lake: Lake, scorer: str) -> Vocabulary | None:
    """Return the newest frozen words of a scorer, given its digest, or None."""
    rows = lake.query(
        'SELECT word, threshold, pictures FROM tag_words WHERE scorer = ? AND "commit" = '
        '(SELECT max("commit") FROM tag_words WHERE scorer = ?) ORDER BY position',
        (scorer, scorer),
    )
    if not rows:
        return None
    words = tuple(word for word, _, _ in rows)
    thresholds = tuple(bar for _, bar, _ in rows if bar is not None)
    return Vocabulary(words, thresholds, rows[0][2], text_id("\n".join(words), *map(repr, thresholds)))
