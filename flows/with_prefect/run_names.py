"""Name a Prefect run by its recipe and then by its result, 'demo 1f0c2a77' and 'demo@3', unless its user named it.

A flow's own ``flow_run_name`` would replace also the name of `prefect deployment run --flow-run-name`. So the run
itself replaces its name, and only one that Prefect made up: the server draws two words, and the form of Prefect's
interface suggests a star, such as 'beta4-orionis'.
"""

import re
from collections.abc import Iterator

from httpx import HTTPError
from prefect.client.orchestration import get_client
from prefect.client.schemas.objects import FlowRun
from prefect.context import FlowRunContext
from prefect.exceptions import PrefectException
from prefect.logging import get_logger

GREEK = (
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|omicron|pi|rho|sigma|tau|upsilon|phi|chi|"
    "psi|omega"
)
# Without a number, which one suggested star in nine lacks, 'beta-test' of a person would be taken for a star.
STAR = re.compile(rf"({GREEK})\d+-[a-z]+(-[a-z]+)*")


def name_run(about: str) -> None:
    """Rename the current run to ``about`` and the first 8 digits of its id, if Prefect generated its name."""
    run = _current()
    if run is not None and is_made_up(run.name):
        _rename(run, _first_name(about, run))


def name_by_result(about: str, result: str) -> None:
    """Rename the current run to ``result`` if it still has the name that `name_run` gave it for ``about``."""
    run = _current()
    if run is not None and run.name == _first_name(about, run):
        _rename(run, result)


def is_made_up(name: str) -> bool:
    """Return whether a run's name is one that Prefect's server or its form generated."""
    if STAR.fullmatch(name):
        return True
    from coolname.data import config  # the server's own list of words

    adjective, _, noun = name.partition("-")
    firsts, seconds = (set(_words(config, part)) for part in config["an"]["lists"])
    return adjective in firsts and noun in seconds


def _words(config: dict, name: str) -> Iterator[str]:
    """Yield the words of one list of coolname's, with those of the lists within."""
    yield from config[name].get("words", ())
    for part in config[name].get("lists", ()):
        yield from _words(config, part)


def _first_name(about: str, run: FlowRun) -> str:
    """Return the name of a run whose result is not known yet."""
    return f"{about} {run.id.hex[:8]}"


def _current() -> FlowRun | None:
    """Return the flow run of this process; None outside of one."""
    context = FlowRunContext.get()
    return context.flow_run if context else None


def _rename(run: FlowRun, name: str) -> None:
    """Rename a run, unless its user has renamed it meanwhile. A server that refuses is logged: no work is lost."""
    try:
        with get_client(sync_client=True) as client:
            if client.read_flow_run(run.id).name == run.name:
                client.set_flow_run_name(run.id, name).raise_for_status()
                run.name = name  # the lines of the log carry it
    except (HTTPError, PrefectException) as error:
        get_logger(__name__).warning(f"the run could not be named '{name}': {error}")
