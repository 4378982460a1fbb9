"""Define the replay flow: retry items quarantined for one reason, then curate with them."""

from functools import partial, update_wrapper

from pairmill.catalog.cut.publication import Published
from pairmill.flows.curate import RunStep, curate_steps
from pairmill.tasks.collect.reopen import replay
from pairmill.tasks.run.session import Session


def replay_steps(session: Session, reason: str, run_step: RunStep) -> Published:
    """Reopen items quarantined for ``reason``, then run the steps of curate.

    The session has no source, so nothing new is ingested.
    """
    run_step(update_wrapper(partial(replay, reason=reason), replay), session)
    return curate_steps(session, run_step)
