"""Group duplicate images: near-equal images by perceptual hash and by embedding, joined into groups."""

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
    """Find new edges of the kinds that the recipe compares, then regroup if there are any."""
    settings = session.recipe.duplicates
    if settings.phash is not None:
        find_perceptual(session, settings.phash)
    if settings.cosine is not None:
        find_semantic(session, PICTURES, settings.cosine, settings.max_group)
    if settings.is_on:
        regroup(session, PICTURES, settings.max_group, lambda rows: [rows])


def find_perceptual(session: Session, bits: int) -> None:
    """Find edges between image hashes at most ``bits`` apart.

    Runs in this process with 36 bytes an image, and 90 more during the comparison: 200M images take 25 GB, the largest
    size that fits.
    """
    hashed = session.plan.scorer("image_hash")
    settings = {"phash": bits}
    scorer = Scorer(PICTURES.perceptual, PICTURES.edges, hamming.VERSION, settings, "", (hashed,))
    done = index_ranges.newest(session.lake, PICTURES.edges, session.use(PICTURES.perceptual, scorer))
    if index_ranges.newest(session.lake, "image_hash", hashed) > done:
        session.compute(PICTURES.steps[0], 1, lambda: _compare_hashes(session, bits, scorer.digest, done))


def _compare_hashes(session: Session, bits: int, digest: str, done: int) -> None:
    """Compare the hashes of commits after ``done`` with all hashes, and commit the edges."""
    keys, hashes, commits = duplicate_edges.hashes(session.lake, session.plan.scorer("image_hash"))
    left, right, distance = hamming.hamming_edges(hashes, commits > done, bits)
    found = edges(PICTURES.edges, names(keys, left), names(keys, right), np.asarray(distance), "perceptual", digest)
    session.store(PICTURES.steps[0], WorkItem("all", (str(done),)), [found])
