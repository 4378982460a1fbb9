"""Start a run: check sources, rules and models before any work, then take the lease."""

import os
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager

from pairmill.catalog.cut.edits import with_kept
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.lease_row import holder_of
from pairmill.catalog.lake.opening import check_is_lake, create_or_open
from pairmill.catalog.lake.score_tables import add_heads
from pairmill.catalog.pending.quarantine import check_reason
from pairmill.catalog.recipe.plan import Plan, compile_plan
from pairmill.catalog.recipe.recipe import Recipe, refuse_other_scorers
from pairmill.catalog.write import runs
from pairmill.catalog.write.import_scores import with_imported
from pairmill.catalog.write.judgement_log import register_judgements
from pairmill.catalog.write.lease import writing
from pairmill.catalog.write.recorded_removals import unfinished_notice
from pairmill.catalog.write.scorer import Scorer
from pairmill.flows.machine.recipe_models import missing_models
from pairmill.flows.run.model_size import check_sizes
from pairmill.flows.run.settings import Compute, resolve_source
from pairmill.ops.read.source import SourceError, open_source
from pairmill.tasks.collect import listing
from pairmill.tasks.run.place import identity
from pairmill.tasks.run.pool import fork_server
from pairmill.tasks.run.pool.process import LOG
from pairmill.tasks.run.session import Session

Checked = tuple[Plan, list[Scorer]]  # a plan, and the scorers to register, as of `identity.with_scorers`


@contextmanager
def session(
    recipe: Recipe,
    sources: Sequence[str],
    lake: str,
    compute: Compute,
    flow: str = "curate",
    run_id: str = "",
    retry: str = "",
    needs_source: bool = True,
) -> Iterator[Session]:
    """Check sources, rules and models, open the lake, and yield a session that holds its lease.

    ``run_id`` is for a flow with several sessions; '' as for `session_on`. ``retry`` and ``needs_source`` are as for
    `check_run`.

    Raises PairmillError as `check_run`, or if a machine of the Ray cluster lacks something; LeaseHeld if another
    process writes to the lake.
    """
    uris, checked = check_run(recipe, sources, compute, lake, retry, needs_source)
    if compute.placement().is_cluster:
        from pairmill.flows.machine.cluster_nodes import check_nodes  # with Ray, which other runs do without

        check_nodes(compute.ray_address, lake, uris, checked[0].recipe)
    with create_or_open(lake) as opened, session_on(opened, checked, compute, flow, uris, run_id) as session:
        yield session


def check_run(
    recipe: Recipe, sources: Sequence[str], compute: Compute, lake: str = "", retry: str = "", needs_source: bool = True
) -> tuple[tuple[str, ...], Checked]:
    """Check sources, rules and models; return the sources' addresses, and the plan with its scorers.

    A run that retries items quarantined for the reason ``retry``, or needs no source, does not read the recipe's own
    sources; without ``sources``, ``lake`` must exist. The cheapest checks come first: a model may have to be
    downloaded, and all its bytes are read.

    Raises BadRecipe if the recipe is not valid, or a rule's threshold is that of another scorer; ModelError or
    SourceError if a model or source is missing or unusable; PairmillError if another setting is wrong; LeaseHeld if
    another process still writes to the lake after ``compute.wait_minutes``.
    """
    if retry:
        check_reason(retry)
    uris = resolve_sources(recipe, sources) if sources or (needs_source and not retry) else ()
    if not uris:
        check_is_lake(lake)
    plan = compile_plan(recipe)
    check_sizes(compute.models, compute.max_cost, plan)
    for model in missing_models(recipe):
        LOG.info("downloading %s", model)
        model.download_weights()
    checked = identity.with_scorers(plan)
    refuse_other_scorers(recipe, {scorer.name: scorer.digest for scorer in checked[1]})
    return uris, checked


def resolve_sources(recipe: Recipe, sources: Sequence[str]) -> tuple[str, ...]:
    """Return the addresses of ``sources``, else of the recipe's sources.

    Raises SourceError if there is no source, or one is missing or empty.
    """
    uris = tuple(resolve_source(uri) for uri in (sources or recipe.sources))
    if not uris:
        raise SourceError(
            f"recipe '{recipe.name}' names no source; give one: --source FOLDER, FILE, s3://bucket/prefix or https://host/list"
        )
    for uri in uris:
        listing.check(open_source(uri))
    return uris


@contextmanager
def session_on(
    lake: Lake,
    checked: Checked,
    compute: Compute,
    flow: str,
    uris: tuple[str, ...] = (),
    run_id: str = "",
    completed: Callable[[Session], None] | None = None,
) -> Iterator[Session]:
    """Yield a session on an open lake, with its lease held and the run recorded.

    ``checked`` is the result of `identity.with_scorers`, ``flow`` the run's name in the table ``runs``, ``run_id`` its
    id, 32 hex digits; '' means that of Prefect's flow run, so that both share ids, else a new one. ``completed`` is
    called once the run is recorded as completed, while the lease is still held. Raises LeaseHeld if another process
    writes to the lake.
    """
    plan, known = with_imported(lake, checked[0]), checked[1]
    loads_models = flow != "maintain"  # so a machine needs no weights to maintain a lake
    fork_server.preload(identity.model_specs(plan) if loads_models else [])
    run_id = run_id or os.environ.get("PREFECT__FLOW_RUN_ID", "").replace("-", "") or uuid.uuid4().hex
    shown = [open_source(uri).uri for uri in uris]  # without secrets in addresses
    wait = 60 * compute.wait_minutes
    if wait and (holder := holder_of(lake.metadata)) and not holder.is_dead():
        LOG.warning("waiting up to %g minutes for the run that writes to the lake: %s", compute.wait_minutes, holder)
    with writing(lake, run_id, f"{flow} {plan.recipe.name}", wait) as writer:
        session = Session(writer, plan, compute.placement(), uris, allow_addresses=tuple(compute.allow_addresses))
        session.plan = with_kept(lake, plan)
        add_heads(writer.lake, plan.scores)
        session.allow_empty = compute.allow_empty
        session.budget.most = compute.max_cost
        session.spending.limits = compute.limits()
        if loads_models:
            session.demo_weights = identity.demo_weights(plan.recipe, known)
        session.register_later(known)
        if loads_models and (notice := unfinished_notice(lake)):
            session.note(notice, once=True)
        register_judgements(writer.lake)
        recorded = runs.record_run(lake, run_id, flow, plan.recipe, shown)
        with recorded, closing(session.fleets):
            yield session
        if completed:
            completed(session)
