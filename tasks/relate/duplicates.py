"""Group duplicates: near-equal pictures by perceptual hash and by embedding, joined into groups."""

import numpy as np

from pairmill.catalog.pending import duplicate_edges, index_ranges
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.training import IMAGES
from pairmill.catalog.write.scorer import Scorer
from pairmill.ops.whole import hamming
from pairmill.tasks.relate.duplicate_groups import DuplicateKind, edges, find_semantic, names, regroup
from pairmill.tasks.run.session import Session

PICTURES = DuplicateKind(
    IMAGES,
    "pictures",
    "duplicate_edges",
    "image_groups",
    "perceptual_edges",
    "semantic_edges",
    ("perceptual duplicates", "semantic duplicates", "group duplicates"),
)


def group_duplicates(session: Session) -> None:
    """Find new edges of both kinds, then regroup if there are any."""
    settings = session.recipe.duplicates
    find_perceptual(session)
    find_semantic(session, PICTURES, settings.cosine, settings.max_group)
    regroup(session, PICTURES, settings.max_group, lambda rows: [rows])


def find_perceptual(session: Session) -> None:
    """Find edges between hashes at most ``duplicates.phash`` bits apart; in this process, by 36 bytes a picture and 90
    more while they are compared: 200M pictures take 25 GB, and there it stops."""
    hashed = session.plan.scorer("image_hash")
    settings = {"phash": session.recipe.duplicates.phash}
    scorer = Scorer(PICTURES.perceptual, PICTURES.edges, hamming.VERSION, settings, "", (hashed,))
    done = index_ranges.newest(session.lake, PICTURES.edges, session.use(PICTURES.perceptual, scorer))
    if index_ranges.newest(session.lake, "image_hash", hashed) > done:
        session.compute(PICTURES.steps[0], 1, lambda: _compare_hashes(session, scorer.digest, done))


def _compare_hashes(session: Session, digest: str, done: int) -> None:
    keys, hashes, commits = duplicate_edges.hashes(session.lake, session.plan.scorer("image_hash"))
    left, right, distance = hamming.hamming_edges(hashes, commits > done, session.recipe.duplicates.phash)
    found = edges(PICTURES.edges, names(keys, left), names(keys, right), np.asarray(distance), "perceptual", digest)
    session.store(PICTURES.steps[0], WorkItem("all", (str(done),)), [found])
