"""Implement `pairmill up`: start Prefect's server and serve the deployments, until Ctrl-C."""

import time
from argparse import Namespace
from functools import partial
from pathlib import Path

from prefect.client.orchestration import get_client
from prefect.settings import get_current_settings

from pairmill.flows.command.terminal import console
from pairmill.flows.with_prefect.alerts import install_alerts, watch_heartbeats
from pairmill.flows.with_prefect.local_prefect import server
from pairmill.flows.with_prefect.served import check_no_work_pool, deployments, maintain_nightly, serving

POLL_SECONDS = 1.0


def up(args: Namespace) -> int:
    """Start Prefect's server if needed, and serve the deployments until Ctrl-C; then stop all that was started.

    Raises PairmillError if a child process exits by itself.
    """
    say = partial(console().print, markup=False)
    say("loading Prefect")
    with server(say, args.port) as (api, children), get_client(sync_client=True) as client:
        check_no_work_pool(client, api)
        watch_heartbeats(client)
        for name in install_alerts(client):
            say(f"installed the alert '{name}'")
        lake = str(Path(args.lake).expanduser().absolute())
        with serving(client, api, lake) as child:
            say(f"serving {', '.join(deployments())}, with the log in {child.log}; runs write to {lake}")
            if line := maintain_nightly(client, lake):
                say(line)
            say(f"Prefect's interface  {get_current_settings().ui_url or api.removesuffix('/api')}")
            say(f"for prefect's own commands, in another terminal:\nexport PREFECT_API_URL={api}")
            try:
                say("Ctrl-C stops it.")  # who reads it may press Ctrl-C before the next statement
                while True:
                    for each in (*children, child):
                        each.check()
                    time.sleep(POLL_SECONDS)
            except KeyboardInterrupt:
                say("stopping")
                return 0
