"""Count the words of sentences, freeze their probabilities, and sample the sentences that tag words are mined from."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import paths_by_shard
from pairmill.catalog.pending.training import SENTENCES, newest_frozen, sample_query
from pairmill.catalog.pending.worklist import rounds
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.ids import text_id


@dataclass(frozen=True)
class FrozenWords:
    """Committed word probabilities: ``path`` of their file, and a digest of their content.

    ``sentences``: distinct sentences in the lake when they were frozen.
    """

    path: str
    sentences: int
    digest: str


def n_sentences(lake: Lake) -> int:
    """Return the number of distinct sentences in the lake. It measures growth: a page that is read again adds none."""
    return lake.query("SELECT count(*) FROM sentence_content")[0][0]


def pending_counts(lake: Lake, scorer: str) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items, one a shard, over shards whose words ``scorer`` has not counted.

    A document that is read again is counted again: shares hardly change, and a shard's counts stay fixed.
    """
    sql = """SELECT shard, sum(rows)::BIGINT FROM partitions WHERE "table" = 'sentences' AND rows > 0
        AND shard NOT IN (SELECT shard FROM partitions WHERE "table" = 'word_counts' AND scorer = ?)
        GROUP BY shard ORDER BY shard"""
    for run in rounds(lake.query(sql, (scorer,))):
        paths = paths_by_shard(lake, "sentences", run)
        yield [WorkItem(shard, (shard,), paths[shard], ("word_counts",)) for shard in run]


def merge_counts(lake: Lake, scorer: str, rarest: float) -> pa.Table:
    """Sum the word counts of all shards into rows (word, p), sorted by word; ``p`` is the word's share of all words.

    Words with a share below ``rarest`` are left out: at most 1 / rarest rows, whatever the corpus size.
    """
    counts = "SELECT word, sum(n) AS n FROM word_counts WHERE scorer = ? GROUP BY word"
    sql = f"""WITH counts AS ({counts}), whole AS (SELECT sum(n) AS n FROM counts)
        SELECT word, counts.n::DOUBLE / whole.n::DOUBLE AS p FROM counts, whole
        WHERE counts.n >= {rarest!r} * whole.n ORDER BY word"""
    return lake.table(sql, (scorer,))


def frozen(lake: Lake, scorer: str) -> FrozenWords | None:
    """Return the newest frozen word probabilities of the scorer with this digest; None if there are none."""
    if (found := newest_frozen(lake, "word_probabilities", "sentences", scorer)) is None:
        return None
    path, sentences, commit, _ = found
    sql = "SELECT word, p FROM word_probabilities WHERE scorer = ? AND commit = ? ORDER BY word"
    rows = lake.table(sql, (scorer, commit))
    # p is a quotient of integers with 17 digits, equal on every machine.
    digest = text_id("\n".join(rows["word"].to_pylist()), *map(repr, rows["p"].to_pylist()))
    return FrozenWords(path, sentences, digest)


@dataclass(frozen=True)
class Vocabulary:
    """Tag words, in order, and the threshold of each word's cosine, () if an image gets its nearest words in any case.

    ``pictures``: images eligible when the words were frozen. ``digest``: of words and thresholds, '' for a plain list.
    """

    words: tuple[str, ...]
    thresholds: tuple[float, ...] = ()
    pictures: int = 0
    digest: str = ""


def sample_items(lake: Lake, plan: Plan, n: int, rows: int) -> list[WorkItem]:
    """Split the ``n`` eligible sentences with the smallest sha256(content || seed) into items of ``rows``, with texts.

    An item's name is a hash of its sentences, so a committed count stays valid if the run fails.
    """
    found = lake.query(f"""SELECT s.key, c.text FROM ({sample_query(plan, SENTENCES, n)}) s
        JOIN sentence_content c ON c.content = s.key
        ORDER BY sha256(s.key || '{plan.recipe.seed}')""")
    parts = (found[start : start + rows] for start in range(0, len(found), rows))
    named = ((tuple(key for key, _ in part), [text for _, text in part]) for part in parts)
    return [WorkItem(text_id(*keys), keys, tables=("noun_counts",), inputs={"texts": texts}) for keys, texts in named]


def uncounted(lake: Lake, scorer: str, items: Sequence[WorkItem]) -> list[WorkItem]:
    """Return the items of `sample_items` whose nouns ``scorer`` has not counted yet."""
    sql = "SELECT DISTINCT shard FROM partitions WHERE \"table\" = 'noun_counts' AND scorer = ?"
    done = {shard for (shard,) in lake.query(sql, (scorer,))}
    return [item for item in items if item.shard not in done]


def count_nouns(lake: Lake, scorer: str, items: Sequence[WorkItem], fewest: int) -> dict[tuple[str, bool], int]:
    """Return (phrase, is plural) -> number of sentences with it, summed over ``items``; at least ``fewest`` each."""
    sql = """SELECT phrase, is_plural, sum(n)::BIGINT FROM noun_counts WHERE scorer = ?
        AND shard IN (SELECT unnest(?::VARCHAR[])) GROUP BY ALL HAVING sum(n) >= ? ORDER BY ALL"""
    rows = lake.query(sql, (scorer, [item.shard for item in items], fewest))
    return {(phrase, is_plural): n for phrase, is_plural, n in rows}


def frozen_words(lake: Lake, scorer: str) -> Vocabulary | None:
    """Return the newest frozen tag words of the scorer with this digest; None if there are none."""
    sql = """SELECT word, threshold, pictures FROM tag_words WHERE scorer = ? AND "commit" =
        (SELECT max("commit") FROM tag_words WHERE scorer = ?) ORDER BY position"""
    rows = lake.query(sql, (scorer, scorer))
    if not rows:
        return None
    words = tuple(word for word, _, _ in rows)
    thresholds = tuple(bar for _, bar, _ in rows if bar is not None)
    return Vocabulary(words, thresholds, rows[0][2], text_id("\n".join(words), *map(repr, thresholds)))
