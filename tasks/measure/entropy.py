"""Score sentences by entropy: count the corpus's words once, freeze their probabilities, and score by them.

Probabilities are trained like centroids: words are counted over every ingested sentence before any rule, shard by
shard, merged, committed, then frozen. They are renewed only when the lake has ``words.refresh_at`` times the sentences
that were counted; every sentence is then scored again. Counts per shard stay stored: only new shards are counted.

At 2.1B sentences counting and scoring take some 70 CPU hours each (8,400 sentences a second); the merge groups the
words of some 10^5 shards on disk.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa

from pairmill.catalog.pending import word_counts
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.word_counts import FrozenWords
from pairmill.catalog.pending.worklist import pending_sentences
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.terms.scores import CORPUS_ENTROPY
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.text.corpus_entropy import COUNT_VERSION, RAREST, CorpusEntropy, count_words
from pairmill.tasks.measure.calibrate import calibrate
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import read_rows, read_table, score_rows
from pairmill.tasks.run.session import Session

TABLE = CORPUS_ENTROPY.table
TRAIN = "train word probabilities"


def score_entropy(session: Session) -> None:
    """Compute the corpus entropy of pending sentences if the recipe reads it, after updating word probabilities."""
    if TABLE not in {score.table for score in session.plan.scores}:
        return
    found = _frozen_words(session)
    if found is None:
        return
    digest = session.use(TABLE, Scorer(TABLE, TABLE, CorpusEntropy({}).version, {}, found.digest))
    calibrate(session, Stage.PIXELS, ["sentence"])
    pending = pending_sentences(session.lake, session.plan, [TABLE], Stage.PIXELS)
    session.work_rounds(CORPUS_ENTROPY.step, pending, ScoreEntropy(found.path, digest))


def _frozen_words(session: Session) -> FrozenWords | None:
    """Return the lake's word probabilities, computed now if there are none or the lake has outgrown them."""
    counts = Scorer("word_counts", "word_counts", COUNT_VERSION)
    shares = Scorer("word_probabilities", "word_probabilities", COUNT_VERSION, {"rarest": RAREST}, "", (counts.digest,))
    # A dataset version lists all of its scorers, those of earlier runs included: else a rerun would publish another.
    session.use("word_counts", counts)
    session.use("word_probabilities", shares)
    found = word_counts.frozen(session.lake, shares.digest)
    if found is not None and session.is_measured:
        return found
    n = word_counts.n_sentences(session.lake)
    if found is not None and n <= session.recipe.words.refresh_at * found.sentences:
        return found
    uncounted = word_counts.pending_counts(session.lake, counts.digest)
    session.work_rounds("count words", uncounted, CountWords(counts.digest))
    made = session.compute(TRAIN, n, lambda: _freeze(session, shares, counts.digest, n))
    if found is not None and made:
        session.note(
            f"Word probabilities were made anew, of {n:,} sentences, {n / found.sentences:.1f} times those of before: "
            "every sentence's entropy, and what follows from it, was done again.",
            once=True,
        )
    return word_counts.frozen(session.lake, shares.digest) if made else None


def _freeze(session: Session, shares: Scorer, counts: str, n: int) -> None:
    """Merge the counts of all shards and commit them as probabilities, with the ``n`` sentences counted."""
    rows = word_counts.merge_counts(session.lake, counts, RAREST)
    rows = rows.append_column("sentences", pa.repeat(pa.scalar(n, pa.int64()), rows.num_rows))
    item = WorkItem("words", (shares.digest, str(n)))
    session.store(TRAIN, item, [Part("word_probabilities", rows, shares.digest)])


@dataclass(frozen=True)
class CountWords:
    """Job: count the words of one shard's sentences, repeats included, into ``word_counts``."""

    unit: ClassVar[str] = "shards"

    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Count the words of one item's sentences; return rows of ``word_counts``."""
        tables = (read_table(path, ["text"], [("shard", "==", item.shard)]) for path in item.paths)
        counts = count_words(text for table in tables for text in table["text"].to_pylist())
        words = sorted(counts)
        rows = {"word": pa.array(words, pa.string()), "n": pa.array([counts[word] for word in words], pa.int64())}
        return [Part("word_counts", pa.table(rows), self.scorer)]


@dataclass(frozen=True)
class ScoreEntropy:
    """Job: score the sentences of one shard by the probabilities at ``path``, into ``corpus_entropy``."""

    unit: ClassVar[str] = "sentences"

    path: str
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Score the sentences of one item; return rows of ``corpus_entropy``."""
        rows = read_rows(item, ["content", "text"], "content")
        batch = CorpusEntropy(load(self.path))({"text": rows["text"].to_pylist()})
        scored = score_rows(CORPUS_ENTROPY, rows["content"].to_pylist(), dict(batch))
        return [Part(TABLE, scored, self.scorer)]


@functools.lru_cache(maxsize=2)
def load(path: str) -> Mapping[str, float]:
    """Load word -> probability from ``path``, cached by the process: some 500,000 words of a corpus of billions."""
    table = read_table(path, ["word", "p"])
    return dict(zip(table["word"].to_pylist(), table["p"].to_pylist(), strict=True))
