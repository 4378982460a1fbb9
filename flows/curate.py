"""Curate: the recipe read aloud, from documents to a published dataset."""

from collections.abc import Callable
from typing import Any

from tasks.associate import associate
from tasks.caption import caption, fuse, tag
from tasks.cluster import cluster
from tasks.duplicates import group_duplicates
from tasks.fetch import fetch
from tasks.ingest import ingest
from tasks.publish import Published, publish
from tasks.run.session import Session
from tasks.score_images import score_images
from tasks.score_sentences import score_sentences

Do = Callable[[Callable[[Session], Any], Session], Any]


def curate_steps(session: Session, do: Do) -> Published:
    """All steps in order; ``do`` is how one is carried out: as it is, or as a Prefect task."""
    do(ingest, session)
    do(fetch, session)
    do(score_images, session)
    do(score_sentences, session)
    do(cluster, session)
    do(group_duplicates, session)
    do(associate, session)
    do(caption, session)
    do(tag, session)
    do(fuse, session)
    return do(publish, session)
