"""Define the curate flow: all steps in order, from documents to a published dataset."""

from collections.abc import Callable
from functools import partial, update_wrapper
from typing import Any

from pairmill.tasks.collect.fetch import fetch
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.generate.caption import caption, own_captions
from pairmill.tasks.generate.fusion import fuse
from pairmill.tasks.generate.tag import tag
from pairmill.tasks.generate.waves import next_wave
from pairmill.tasks.measure.entropy import score_entropy
from pairmill.tasks.measure.score_contents import score_images, score_sentences
from pairmill.tasks.measure.score_pairs import score_pairs
from pairmill.tasks.publish import Published, publish
from pairmill.tasks.relate.associate import associate
from pairmill.tasks.relate.cluster import cluster, cluster_survivors
from pairmill.tasks.relate.duplicates import group_duplicates, group_sentences
from pairmill.tasks.run.session import Session

RunStep = Callable[[Callable[[Session], Any], Session], Any]


def curate_steps(session: Session, run_step: RunStep, retry: str = "") -> Published:
    """Run all steps in order, and return the published version.

    ``run_step`` calls a step directly or as a Prefect task. Items that are quarantined for the reason ``retry`` are
    tried again first.
    """
    measure_steps(session, run_step, retry)
    return text_steps(session, run_step)


def measure_steps(session: Session, run_step: RunStep, retry: str = "") -> None:
    """Run the measuring steps: all steps before any text is generated."""
    if retry:
        run_step(update_wrapper(partial(retry_quarantined, reason=retry), retry_quarantined), session)
    run_step(ingest, session)
    run_step(fetch, session)
    run_step(score_images, session)
    run_step(score_entropy, session)
    run_step(score_sentences, session)
    run_step(cluster, session)
    run_step(group_duplicates, session)
    run_step(group_sentences, session)
    run_step(associate, session)
    run_step(score_pairs, session)
    run_step(cluster_survivors, session)
    run_step(own_captions, session)


def text_steps(session: Session, run_step: RunStep) -> Published:
    """Run the steps that follow the measuring steps: generate texts in waves, then publish the dataset."""
    session.is_measured = False
    while run_step(next_wave, session):
        run_step(caption, session)
        run_step(tag, session)
        run_step(fuse, session)
    return run_step(publish, session)
