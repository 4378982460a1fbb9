"""Run jobs of generative models in rounds of work; verify that endpoints still serve the same model."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain

from pairmill.catalog.pending.answer_cache import split_by_cached_answer
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.worklist import sorted_by_payload
from pairmill.catalog.write.runs import first_answers, record_probe
from pairmill.ops.models.generation import Answering
from pairmill.ops.models.http.chat_client import ChatClient, EndpointSilent
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.models.http.http_spec import parse_http
from pairmill.ops.models.http.probe import agreement, check
from pairmill.tasks.generate.generative_job import ITEM_ROWS, GenerativeJob, RewriteCachedAnswers
from pairmill.tasks.run.session import Session


def generate_in_rounds(
    session: Session,
    step: str,
    rounds: Iterable[Sequence[WorkItem]],
    model: Answering,
    job_of: Callable[[Answering], GenerativeJob],
    most: int = ITEM_ROWS,
) -> None:
    """Run a generative model's job over each round of items, ``most`` images an item at most.

    Cached answers are rewritten as rows without the model. A model behind endpoints is queried with fixed images
    (probed) before and after, and now and then by the workers. Raises ModelError when no endpoint answers, or when one
    serves another model than before. Finished work is committed.

    ``job_of`` returns the job by the model, which gets the endpoints' key and known answers.
    """
    job = job_of(model)
    portions = _pending_items(session, step, rounds, RewriteCachedAnswers(job), most)
    first = next((items for items in portions if items), [])
    rounds = chain([first], portions)
    if not first or not isinstance(model, HttpModel):
        session.work_rounds(step, rounds, job)
        return
    pool = session.placement.pool_of(job.model)
    reached = replace(model, key=pool.key, connections=pool.connections)
    known: list[str] = []
    session.follow(lambda: known.extend(probe(session, reached)))
    try:
        session.work_rounds(step, rounds, job_of(replace(reached, known=tuple(known))))
    finally:
        if beyond := session.budget.unbelieved[step]:
            session.note(
                f"model '{job.model}': its server reports {beyond:,} tokens for '{step}' more than the answers can "
                "have taken; they are not priced, and stand in the table unbelieved_usage. Check what the server bills."
            )
    session.follow(lambda: probe(session, reached))


def _pending_items(
    session: Session, step: str, rounds: Iterable[Sequence[WorkItem]], again: RewriteCachedAnswers, most: int
) -> Iterator[list[WorkItem]]:
    """Write the rows of each round that have cached answers; yield its other rows in items of ``most`` images."""
    for items in rounds:
        parts = [(item, *split_by_cached_answer(item)) for item in items]
        if known := [item.only(told) for item, told, _ in parts if told]:
            session.work(f"{step}, told before", known, again)
        yield [part for item, _, asked in parts if asked for part in _cut(session, item.only(asked), most)]


def probe(session: Session, model: HttpModel) -> tuple[str, ...]:
    """Query every endpoint with the fixed images, and record the answers; return the model's first recorded answers.

    Raises ModelError when no endpoint answers, when one serves another model, or when one denies access.
    """
    spec = parse_http(model.spec)
    first = first_answers(session.lake, spec.digest)
    silent: list[EndpointSilent] = []
    with closing(ChatClient(spec, model.key)) as client:
        for endpoint in client.endpoints:
            try:
                answers = client.probe(endpoint)
            except EndpointSilent as error:
                silent.append(error)
                continue
            first = first or answers
            run_id, server, agrees = session.writer.run_id, client.server(endpoint), agreement(answers, first)
            record_probe(session.lake, run_id, spec.digest, endpoint.url, server, answers, agrees)
            check(f"model 'http:{spec.name}' at {endpoint.url}", answers, first)
    if len(silent) == len(client.endpoints):
        raise silent[0]
    for error in silent:
        session.note(f"{error}; the others do its part until it does", once=True)
    return first


def _cut(session: Session, item: WorkItem, most: int) -> Iterator[WorkItem]:
    """Split an item into items of ``most`` images, keys in file order, so that each reads a part of the file."""
    if len(item.keys) <= most:
        yield item
        return
    keys = sorted_by_payload(session.lake, item) if item.paths else item.keys
    for start in range(0, len(keys), most):
        yield item.only(keys[start : start + most])
