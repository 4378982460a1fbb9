"""Open a run: everything that can be wrong is found before any work, then the lease is taken."""

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from catalog import runs
from catalog.lake import create_or_open
from catalog.lease import writing
from catalog.recipe import Recipe
from flows.settings import Compute, found_source
from ops.read.source import SourceError, open_source
from tasks import scorers
from tasks.session import Session


@contextmanager
def session(
    recipe: Recipe, sources: Sequence[str], lake: str, compute: Compute, flow: str = "curate"
) -> Iterator[Session]:
    """A session that holds the lake's lease, after the recipe, its models and its sources were found good."""
    plan, known = scorers.plan(recipe)
    uris = tuple(found_source(uri) for uri in (sources or recipe.sources))
    if not uris:
        raise SourceError(
            f"recipe '{recipe.name}' names no source; give one: --source FOLDER, FILE or s3://bucket/prefix"
        )
    for uri in uris:
        open_source(uri).units()
    run_id = run_name()
    with (
        create_or_open(lake) as opened,
        writing(opened, run_id, f"{flow} {recipe.name}") as writer,
        runs.recorded(opened, run_id, flow, recipe.name),
    ):
        session = Session(writer, plan, compute.placement(), uris)
        session.register_later(known)
        yield session


def run_name() -> str:
    """Prefect's id of the flow run where there is one, so that both sides name a run alike."""
    return os.environ.get("PREFECT__FLOW_RUN_ID", "").replace("-", "") or uuid.uuid4().hex
