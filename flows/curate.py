"""Curate: the recipe read aloud, from documents to a published dataset."""

from collections.abc import Callable
from typing import Any

from tasks.associate import associate
from tasks.balance import cluster_survivors
from tasks.caption import caption
from tasks.cluster import cluster
from tasks.duplicates import group_duplicates
from tasks.entropy import score_entropy
from tasks.fetch import fetch
from tasks.fusion import fuse
from tasks.ingest import ingest
from tasks.publish import Published, publish
from tasks.run.session import Session
from tasks.score_images import score_images
from tasks.score_sentences import score_sentences
from tasks.sentence_duplicates import group_sentences
from tasks.tag import tag
from tasks.waves import next_wave

RunStep = Callable[[Callable[[Session], Any], Session], Any]


def curate_steps(session: Session, run_step: RunStep) -> Published:
    """Run all steps in order; ``run_step`` calls one as it is, or as a Prefect task."""
    run_step(ingest, session)
    run_step(fetch, session)
    run_step(score_images, session)
    run_step(score_entropy, session)
    run_step(score_sentences, session)
    run_step(cluster, session)
    run_step(group_duplicates, session)
    run_step(group_sentences, session)
    run_step(associate, session)
    run_step(cluster_survivors, session)
    while run_step(next_wave, session):
        run_step(caption, session)
        run_step(tag, session)
        run_step(fuse, session)
    return run_step(publish, session)
