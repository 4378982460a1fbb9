"""Define the recaption flow: caption every image of a lake or of sources, show the first captions, export all."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, update_wrapper

from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.pending.quarantine import check_reason
from pairmill.catalog.recipe.plan import compile_plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.curate import RunStep
from pairmill.flows.run.caption_outcome import CaptionOutcome, caption_outcome
from pairmill.flows.run.model_size import check_sizes
from pairmill.flows.run.run_start import resolve_sources, session_on
from pairmill.flows.run.settings import Compute
from pairmill.tasks.collect.fetch import fetch
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.collect.reopen import retry_quarantined
from pairmill.tasks.generate.caption_all import caption_first, caption_rest, select_captioner
from pairmill.tasks.release.export.caption_export import CaptionsExported, Format, check_captions_place, export_captions
from pairmill.tasks.run.place import identity
from pairmill.tasks.run.place.progress import Progress
from pairmill.tasks.run.session import Session

Look = Callable[[CaptionOutcome], None]


@contextmanager
def recaption_session(recipe: Recipe, sources: Sequence[str], lake: str, compute: Compute) -> Iterator[Session]:
    """Check the captioner and the sources, open the lake, and yield a session that holds its lease.

    Without sources the lake must exist. Raises as `flows.run.run_start.session` does.
    """
    if not recipe.captioners:
        raise BadRecipe(f"recipe '{recipe.name}' has no captioner; add one to `captioners`, or name another recipe.")
    uris = resolve_sources(recipe, sources) if sources else ()
    if not uris:
        check_is_lake(lake)
    plan = compile_plan(recipe)
    check_sizes(compute.models, compute.max_cost, plan)
    identity.check_captioner(recipe, recipe.captioners[0])
    with create_or_open(lake) as opened, session_on(opened, (plan, []), compute, "recaption", uris) as session:
        yield session


def recaption_steps(
    session: Session, run_step: RunStep, look: Look, to: str, format: Format, retry: str = ""
) -> CaptionsExported | None:
    """Ingest, fetch, caption the first images, show them, caption the rest, and export to ``to`` if it is not ''.

    Args:
        session: The captioning session.
        run_step: Calls a step directly, or as a Prefect task.
        look: Shows the first captions; it raises to stop the run before the rest costs anything.
        to: URI of the export, '' for none.
        format: Format of the export.
        retry: Quarantine reason whose items are tried again, '' for none.

    Raises:
        PairmillError: ``retry`` is no quarantine reason.
    """
    scorer = select_captioner(session)
    if retry:
        check_reason(retry)
    if to:
        check_captions_place(session.lake, scorer, to, format)
    if retry:
        run_step(update_wrapper(partial(retry_quarantined, reason=retry), retry_quarantined), session)
    run_step(ingest, session)
    run_step(fetch, session)
    run_step(caption_first, session)
    look(caption_outcome(session, scorer))
    run_step(caption_rest, session)
    return run_step(_named(partial(_export, scorer=scorer, to=to, format=format)), session) if to else None


def _export(session: Session, scorer: str, to: str, format: Format) -> CaptionsExported:
    """Export the captions of ``scorer``."""

    def show(done: int, total: int) -> None:
        session.progress(Progress("export captions", done, total, "captions"))

    return export_captions(session.lake, scorer, to, format, show)


def _named(step: Callable[[Session], CaptionsExported]) -> Callable[[Session], CaptionsExported]:
    """Give an export step the name and docstring of `export_captions`, which are shown."""
    return update_wrapper(step, export_captions)
