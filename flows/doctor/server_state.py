"""Check whether the Prefect server answers, and whether its version is the one that Pairmill is tested with."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version

from pairmill.flows.machine.finding import Finding, Patient

SECONDS = 5


def server_state(patient: Patient) -> Iterator[Finding]:
    """Ask the configured server, or that of a running `pairmill up`, for its version."""
    from pairmill.flows.with_prefect.local_prefect import known_server  # imports Prefect's settings, 1.3 s

    if not (api := known_server()):
        yield Finding("ok", "no server; `pairmill run` needs none, `pairmill up` starts one")
        return
    try:
        with urllib.request.urlopen(f"{api}/admin/version", timeout=SECONDS) as answer:
            found = str(json.load(answer))
    except urllib.error.HTTPError as error:
        yield Finding("ok", f"{api} answers (status {error.code})")  # Prefect Cloud has no such page
        return
    except (OSError, ValueError) as error:
        remedy = "start it (`pairmill up` starts one where PREFECT_API_URL is unset), or correct PREFECT_API_URL"
        yield Finding("fail", f"{api} does not answer ({getattr(error, 'reason', error)})", remedy)
        return
    here = version("prefect")
    if found.split(".")[:2] == here.split(".")[:2]:
        yield Finding("ok", f"{api} answers, version {found}")
    else:
        yield Finding("warn", f"{api} has version {found}, here is {here}", f"use a server of version {here}")
