"""Vocabulary: mine candidate tag words from the corpus, and freeze the chosen words with a threshold each.

Words and thresholds are trained like centroids: computed from a hash-ranked sample of eligible sentences and images,
committed, then frozen. They are trained again only when the eligible images have grown ``association.retrain_at`` times
since; then every kept image is tagged again.

The samples bound the cost, whatever the size of the lake: some five CPU minutes to parse 200,000 sentences, and 20,000
images x 20,000 words (16,000 candidates for 4,000 mined words), 0.8 TFLOP at 1,024 dimensions, in a worker with CLIP.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from pairmill.catalog.pending import training, word_counts
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import IMAGES
from pairmill.catalog.pending.word_counts import Vocabulary
from pairmill.catalog.recipe.parts_of_texts import Tags
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.models.backends import content_digest
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.text.noun_phrases import NounPhrases, merge_plurals, singulars
from pairmill.ops.whole import word_vectors
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.items.rows import scalars, to_halves
from pairmill.tasks.run.place.identity import parser, tagger, tagger_name
from pairmill.tasks.run.session import Session

MINE, TRAIN = "mine nouns", "train tag words"
SENTENCES = 200_000  # sampled: a word of one sentence in 10,000 is counted 20 times, give or take 4
SENTENCES_AN_ITEM = 2_000
PICTURES = 20_000  # sampled: a word's 99th percentile of cosines is then its 200th best image
# With fewer images that percentile would be a word's highest cosine, and the four images that ground a word over 4 % of
# all. In the demo world, of images that show no word, thresholds from 100 sampled images left 0.42 without a tag, those
# from 3,282 images 0.51.
FEWEST_PICTURES = 100
FEWEST_SENTENCES = 3
# Candidates per mined word: the best-grounded quarter is chosen, so that abstract phrases are dropped even from a few.
CANDIDATES = 4


def vocabulary(session: Session, plan: Plan, tags: Tags, trains: bool) -> Vocabulary | None:
    """Return the frozen tag vocabulary; if none is frozen or the lake has outgrown it, compute it if ``trains``.

    ``plan`` reads the tagger's vectors. With fewer than FEWEST_PICTURES eligible images, returns the recipe's own words
    without thresholds. Returns None if the vocabulary must still be computed.
    """
    own = Vocabulary(tuple(tags.vocabulary))
    if not tags.mined and not tags.strict:
        return own
    nouns = _noun_scorer(session.recipe) if tags.mined else None
    scorer = _scorer(tags, plan, nouns)
    found = word_counts.frozen_words(session.lake, scorer.digest)
    n = training.eligible(session.lake, plan, IMAGES)
    if found is not None and n <= session.recipe.association.retrain_at * found.pictures:
        # A dataset version lists all of its scorers, those of earlier runs included.
        for each in (scorer, *([nouns] if nouns else [])):
            session.use(each.name, each)
        return found
    if n < FEWEST_PICTURES:
        session.note(
            f"tags: words are mined and thresholds measured from {FEWEST_PICTURES} eligible pictures on, and there are "
            f"{n}: each has the {tags.top_k} nearest words of the recipe's vocabulary."
        )
        return own
    if not trains:
        return None
    counts = _count_nouns(session, nouns) if nouns else Counter()
    if not session.compute(TRAIN, n, lambda: _train(session, plan, tags, scorer, counts, n)):
        return None
    if found is not None:
        session.note(
            f"tag words were made anew, of {n:,} pictures, {n / found.pictures:.1f} times those of before: what is "
            "kept was tagged again, and what follows from that was done again.",
            once=True,
        )
    return word_counts.frozen_words(session.lake, scorer.digest)


def _scorer(tags: Tags, plan: Plan, nouns: Scorer | None) -> Scorer:
    """Return the scorer of the words: tag settings, sample sizes, the tagger's vectors and noun counts."""
    settings: dict[str, Any] = {name: getattr(tags, name) for name in ("vocabulary", "template", "mined", "strict")}
    settings |= {"seed": plan.recipe.seed, "pictures": PICTURES, "fewest": FEWEST_SENTENCES}
    settings |= {"candidates": CANDIDATES, "grounding": word_vectors.GROUNDING_VERSION}
    made_from = (plan.scorer(IMAGES.table), *([nouns.digest] if nouns else []))
    return Scorer("tag_words", "tag_words", word_vectors.THRESHOLDS_VERSION, settings, "", made_from)


def _noun_scorer(recipe: Recipe) -> Scorer:
    """Return the scorer of noun phrases counted in a sample of sentences; the parser's model is part of it."""
    spec, settings = parser(recipe), {"seed": recipe.seed, "sample": SENTENCES}
    return Scorer("noun_counts", "noun_counts", NounPhrases(spec).version, settings, content_digest(spec))


def _count_nouns(session: Session, nouns: Scorer) -> Counter[str]:
    """Count the noun phrases of a sample of sentences: phrase -> sentences that contain it. Empty in a survey."""
    n = min(SENTENCES, training.eligible(session.lake, session.plan, training.SENTENCES))
    items: list[WorkItem] = []

    def count() -> None:
        items.extend(word_counts.sample_items(session.lake, session.plan, SENTENCES, SENTENCES_AN_ITEM))
        digest = session.use("noun_counts", nouns)
        waiting = word_counts.uncounted(session.lake, digest, items)
        session.work(MINE, waiting, CountNouns(NounPhrases(parser(session.recipe)), digest))

    session.compute(MINE, n, count)
    return merge_plurals(word_counts.count_nouns(session.lake, nouns.digest, items, FEWEST_SENTENCES))


@dataclass(frozen=True)
class CountNouns:
    """Job: count the sentences that contain each noun phrase, into ``noun_counts``."""

    unit: ClassVar[str] = "sentences"

    op: NounPhrases
    scorer: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Count the noun phrases of one item's texts; return rows of ``noun_counts``."""
        found = self.op({"text": list(item.inputs["texts"])})["noun_phrases"]
        counts = sorted(Counter(phrase for row in found for phrase in row).items())
        rows = {
            "phrase": pa.array([phrase for (phrase, _), _ in counts], pa.string()),
            "is_plural": pa.array([is_plural for (_, is_plural), _ in counts], pa.bool_()),
            "n": pa.array([n for _, n in counts], pa.int64()),
        }
        return [Part("noun_counts", pa.table(rows), self.scorer)]


def _train(session: Session, plan: Plan, tags: Tags, scorer: Scorer, counts: Counter[str], n: int) -> None:
    """Run the job that chooses the tag words and computes their thresholds."""
    chosen = candidates(counts, tags.vocabulary, CANDIDATES * tags.mined)
    vectors = to_halves(training.sample(session.lake, plan, IMAGES, PICTURES)["vector"])
    item = WorkItem("tag words", (scorer.digest, str(n)), inputs={"vectors": vectors, "candidates": chosen})
    digest = session.use("tag_words", scorer)
    session.work(TRAIN, [item], TrainTagWords(tagger(session.recipe), tags, n, digest, tagger_name(session.recipe)))


def candidates(counts: Counter[str], own: Iterable[str], most: int) -> list[tuple[str, int]]:
    """List the ``most`` most frequent phrases as (phrase, count), without singulars and plurals of ``own`` words.

    ``counts``: phrase -> number of sentences that contain it. Ties are in alphabetical order.
    """
    known = {form for word in own for form in (word.lower(), *singulars(word.lower()))}
    new = ((phrase, n) for phrase, n in counts.items() if known.isdisjoint((phrase, *singulars(phrase))))
    return sorted(new, key=lambda each: (-each[1], each[0]))[:most]


@dataclass(frozen=True)
class TrainTagWords:
    """Job: choose the best-grounded mined words and find all thresholds on sampled images, into ``tag_words``.

    ``model`` is the recipe's name of the model that embeds the words.
    """

    unit: ClassVar[str] = ""

    clip: Clip
    tags: Tags
    pictures: int
    scorer: str
    model: str

    def __call__(self, item: WorkItem) -> list[Part]:
        """Choose the words and compute their thresholds; return rows of ``tag_words``, the recipe's own words first."""
        mined: list[tuple[str, int]] = item.inputs["candidates"]
        words = [*self.tags.vocabulary, *(phrase for phrase, _ in mined)]
        vectors = self.clip.embed_texts([self.tags.template.replace("{}", word) for word in words])
        pictures = np.asarray(item.inputs["vectors"], np.float32)
        grounded = word_vectors.grounding(pictures, vectors)
        n_own = len(words) - len(mined)
        most = min(self.tags.mined, -(-len(mined) // CANDIDATES))
        kept = np.array([*range(n_own), *word_vectors.best_grounded(words, grounded, n_own, most)])
        bars = word_vectors.tag_thresholds(pictures, vectors[kept], self.tags.strict) if self.tags.strict else None
        sentences = [0] * n_own + [n for _, n in mined]
        rows = {
            "position": pa.array(range(len(kept)), pa.int32()),
            "word": pa.array([words[word] for word in kept], pa.string()),
            "mined": pa.array([bool(word >= n_own) for word in kept], pa.bool_()),
            "sentences": pa.array([sentences[word] if word >= n_own else None for word in kept], pa.int64()),
            "grounding": pa.array(scalars(grounded[kept]), pa.float64()),
            "threshold": pa.array([None] * len(kept) if bars is None else scalars(bars), pa.float64()),
            "pictures": pa.array([self.pictures] * len(kept), pa.int64()),
        }
        return [Part("tag_words", pa.table(rows), self.scorer)]
