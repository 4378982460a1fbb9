"""Group duplicate sentences: near-equal strings by MinHash, near-equal meaning by embedding, joined into groups.

Runs only with the recipe's `sentence_duplicates`. Edges depend on no rule: every sentence has a signature, and
sentences that passed the rules before the embedding have a vector. A sentence is in one cluster, so a pair across a
cluster border has no semantic edge; strings are compared across all clusters.
"""

from collections.abc import Iterator

import pyarrow as pa

from pairmill.catalog.pending import duplicate_edges, index_ranges
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import SENTENCES
from pairmill.catalog.recipe.parts import SentenceDuplicates
from pairmill.catalog.terms.scores import SENTENCE_SIGNATURE
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.text import minhash
from pairmill.ops.whole.neighbours import near_in_order
from pairmill.tasks.relate.duplicate_groups import DuplicateKind, edges, find_semantic, regroup
from pairmill.tasks.run.items.partition import Part
from pairmill.tasks.run.session import Session

TEXTS = DuplicateKind(
    SENTENCES,
    "sentences",
    "sentence_edges",
    "sentence_groups",
    "sentence_perceptual_edges",
    "sentence_semantic_edges",
    ("perceptual sentence duplicates", "semantic sentence duplicates", "group sentence duplicates"),
)


def group_sentences(session: Session) -> None:
    """Find new edges of both kinds, then regroup if there are any.

    Does nothing if the recipe groups no sentences, or retrieves none.
    """
    settings = session.recipe.sentence_duplicates
    if settings is None or not session.recipe.association.is_on:
        return
    find_perceptual(session, settings)
    if settings.cosine is not None:
        find_semantic(session, TEXTS, settings.cosine, settings.max_group)
    clusters = session.plan.scorer(SENTENCES.clusters)
    regroup(session, TEXTS, settings.max_group, lambda rows: duplicate_edges.by_cluster(session.lake, rows, clusters))


def find_perceptual(session: Session, settings: SentenceDuplicates) -> None:
    """Find edges between sentences whose character 3-grams have a Jaccard similarity of at least ``settings.jaccard``.

    Runs in this process; `catalog.pending.duplicate_edges` describes the search and its limits. Candidate pairs are
    compared exactly, 20,000 a second.
    """
    table = SENTENCE_SIGNATURE.table
    signed = session.plan.scorer(table)
    jaccard = {"jaccard": settings.jaccard}
    scorer = Scorer(TEXTS.perceptual, TEXTS.edges, minhash.JACCARD_VERSION, jaccard, "", (signed,))
    done = index_ranges.newest(session.lake, TEXTS.edges, session.use(TEXTS.perceptual, scorer))
    if index_ranges.newest(session.lake, table, signed) > done:
        found = _near_equal(session, signed, done, settings.jaccard, scorer.digest)
        item = WorkItem("all", (str(done),))
        session.compute(TEXTS.steps[0], 1, lambda: session.store(TEXTS.steps[0], item, found))


def _near_equal(session: Session, signed: str, done: int, jaccard: float, digest: str) -> Iterator[Part]:
    """Yield the edges of each block of compared pairs, after an empty part that records the comparison."""
    nobody = pa.array([], pa.string())
    yield edges(TEXTS.edges, nobody, nobody, minhash.jaccard([], []), "perceptual", digest)
    for block in duplicate_edges.near_candidates(session.lake, signed, done, jaccard, minhash.BANDS, near_in_order):
        likeness = minhash.jaccard(block["left"].to_pylist(), block["right"].to_pylist())
        near = (likeness >= jaccard).nonzero()[0]
        a, b = (block[end].take(near) for end in ("a", "b"))
        yield edges(TEXTS.edges, a, b, 1.0 - likeness[near], "perceptual", digest)
