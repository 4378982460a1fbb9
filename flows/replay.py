"""Replay: what was quarantined for one reason is tried again, and what comes of it joins the dataset."""

from functools import partial, update_wrapper

from catalog.cut.publication import Published
from flows.curate import RunStep, curate_steps
from tasks.reopen import replay
from tasks.run.session import Session


def replay_steps(session: Session, reason: str, run_step: RunStep) -> Published:
    """The steps of curate after one that opens what was closed. The session has no source: nothing new is listed."""
    run_step(update_wrapper(partial(replay, reason=reason), replay), session)
    return curate_steps(session, run_step)
