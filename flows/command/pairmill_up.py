"""Implement `pairmill up`: start Prefect's server and serve the deployments, until Ctrl-C or for one run."""

import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console

from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.catalog.terms.secrets import has_secret, without_secrets
from pairmill.flows.command.option_types import overrides
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.run.settings import load_recipe, resolve_source
from pairmill.flows.with_prefect.alerts import install_alerts, watch_heartbeats
from pairmill.flows.with_prefect.local_prefect import server
from pairmill.flows.with_prefect.processes import Child
from pairmill.flows.with_prefect.served import check_no_work_pool, deployments, maintain_nightly, serving

POLL_SECONDS = 1.0
TASK_DONE = "Finished in state Completed()"


def up(args: Namespace) -> int:
    """Start Prefect's server if needed, and serve the deployments until Ctrl-C, or for the run of ``--once``.

    Stops all that it started. Raises PairmillError for options that need ``--once``.
    """
    screen = console()
    if args.once:
        _check_known(args.once)
        _parameters(args)  # an address with a secret is refused before a server is started
    elif args.source or args.set or args.packs or args.models != "recipe":
        options = "--source, --set, --with and --models"
        raise PairmillError(f"{options} are for one run: add --once DEPLOYMENT, such as curate/demo.")

    def say(line: str) -> None:
        screen.print(line, markup=False)

    say("loading Prefect")
    with server(say, args.port) as (api, children):
        from prefect.client.orchestration import get_client

        with get_client(sync_client=True) as client:
            check_no_work_pool(client, api)
            watch_heartbeats(client)
            for name in install_alerts(client):
                say(f"installed the alert '{name}'")
            lake = str(Path(args.lake).expanduser().absolute())
            with serving(client, api, lake) as child:
                say(f"serving {', '.join(deployments())}, with the log in {child.log}; runs write to {lake}")
                if not args.once and (line := maintain_nightly(client, lake)):
                    say(line)
                say(f"Prefect's interface  {_interface(api)}")
                children = [*children, child]
                return _run_once(client, children, args, api, screen) if args.once else _stay(children, api, say)


def _stay(children: list[Child], api: str, say: Callable[[str], None]) -> int:
    """Wait until Ctrl-C. Raises PairmillError if a child process exits by itself."""
    try:
        say(f"for prefect's own commands, in another terminal:\nexport PREFECT_API_URL={api}")
        say("Ctrl-C stops it.")
        while True:
            for child in children:
                child.check()
            time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        say("stopping")
        return 0


def _run_once(client, children: list[Child], args: Namespace, api: str, screen: Console) -> int:
    """Run one deployment; print its log and outcome. Raises PairmillError if the run does not complete."""
    from pairmill.flows.command.outcome_text import print_outcome
    from pairmill.flows.run.outcome import outcome

    deployment = client.read_deployment_by_name(args.once)
    run = client.create_flow_run_from_deployment(deployment.id, parameters=_parameters(args))
    screen.print(f"run {shown(run.name)}: {_interface(api)}/runs/flow-run/{run.id}")
    for line in _follow_log(client, run.id, children):
        screen.print(line, markup=False)
    state = client.read_flow_run(run.id).state
    if not state.is_completed():
        raise PairmillError(f"{args.once} ended as {state.name}: {state.message or 'without a message'}")
    if not args.once.startswith("curate/"):  # only curate publishes a dataset; others report in their message
        screen.print(shown(state.message))
        return 0
    texts = {key: str(value) for key, value in run.parameters.get("overrides", {}).items()}
    name = load_recipe(run.parameters["recipe"], texts).name  # the dataset's, which may differ from the file's
    found = outcome(run.parameters.get("lake") or args.lake, name)
    print_outcome(screen, found, [], is_new=found.dataset.run_id == run.id.hex)
    screen.print(f"interface {_interface(api)}  (`pairmill up` brings it back)")
    return 0


def _follow_log(client, run_id, children: list[Child]) -> Iterator[str]:
    """Yield the log lines of a flow run until the run ends. Raises PairmillError if a child process exits first."""
    from prefect.client.schemas.filters import LogFilter, LogFilterFlowRunId
    from prefect.client.schemas.sorting import LogSort

    only = LogFilter(flow_run_id=LogFilterFlowRunId(any_=[run_id]))  # pyright: ignore[reportCallIssue]
    seen = 0
    while True:
        for child in children:
            child.check()
        state = client.read_flow_run(run_id).state
        while logs := client.read_logs(only, offset=seen, limit=200, sort=LogSort.TIMESTAMP_ASC):
            seen += len(logs)
            lines = (f"{log.timestamp:%H:%M:%S}  {log.message.splitlines()[0]}" for log in logs if log.message)
            yield from (line for line in lines if not line.endswith(TASK_DONE))
        if state.is_final():
            return
        time.sleep(POLL_SECONDS)


def _check_known(name: str) -> None:
    """Raise PairmillError unless prefect.yaml has the deployment ``name``."""
    known = deployments()
    if name not in known:
        remedy = did_you_mean(name, known) or f"there are {', '.join(known)}."
        raise PairmillError(f"prefect.yaml has no deployment '{name}'; {remedy}")


def _interface(api: str) -> str:
    """Return the URL of Prefect's web interface."""
    from prefect.settings import get_current_settings

    return get_current_settings().ui_url or api.removesuffix("/api")


def _parameters(args: Namespace) -> dict:
    """Return the flow parameters that the command line sets; the deployment's own apply otherwise."""
    assigned = [text.partition("=") for text in args.set]
    check_unsigned([*args.source, *(value for key, _, value in assigned if key.startswith("sources"))])
    sources = [_absolute(resolve_source(uri)) for uri in args.source]
    given = {"sources": sources, "overrides": overrides(args.set, args.packs)}
    given |= {"models": args.models} if args.models != "recipe" else {}
    return {name: value for name, value in given.items() if value}


def check_unsigned(given: list[str]) -> None:
    """Raise PairmillError if an address has a user or a query, maybe secrets: Prefect stores and shows parameters."""
    for text in given:
        if has_secret(text):
            raise PairmillError(
                f"'{without_secrets(text)}?…': Prefect stores a run's parameters and shows them. Keep what may be a "
                "secret in a variable of the worker's environment and name that: --source '${NAME}' or "
                "'https://host/list?${NAME}'."
            )


def _absolute(uri: str) -> str:
    """Make a local source's path absolute, because the run has another working directory."""
    from pairmill.ops.read.source import split_format

    _, place = split_format(uri)
    is_whole = "://" in place or "${" in place
    return uri if is_whole else uri.removesuffix(place) + str(Path(place).expanduser().absolute())
