"""Script: a run that needs a GPU on a cluster that has none yet. Prints its displayed messages as JSON lines.

First it has work for which a node can be launched; then, after a line on standard input, work for which none can.
"""

import json
import logging
import os
import sys
from typing import Any

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write import lease
from pairmill.flows.run.settings import load_recipe
from pairmill.tasks.run.place.placement import ModelPool, Placement
from pairmill.tasks.run.session import Session
from tests.worlds.two_nodes import OnGpu, items


def say(kind: str, *about: Any) -> None:
    """Print a JSON line."""
    print(json.dumps({"kind": kind, "about": about}), flush=True)


def main(lake: str) -> None:
    """Run both kinds of work."""
    log = logging.Handler()
    log.emit = lambda record: say("log", record.getMessage())
    logging.getLogger("pairmill.workers").addHandler(log)
    with create_or_open(lake) as opened, lease.writing(opened, "run", "curate demo") as writer:
        session = Session(writer, Plan(load_recipe("demo", {}), (), (), {}, ()), with_gpus(1))
        session.waiting = lambda step, text: say("shown", step, text)
        session.work("captions", items("row", 3, rows=2), OnGpu(lake, 0.0))
        say("done")
        sys.stdin.readline()
        session.placement = with_gpus(4)
        try:
            session.work("tags", items("never", 1), OnGpu(lake, 0.0))
        except PairmillError as error:
            say("refused", str(error))
        sys.stdin.readline()


def with_gpus(gpus: float) -> Placement:
    """Return a placement on the cluster whose model takes ``gpus`` GPUs."""
    return Placement(ray_address=os.environ["RAY_ADDRESS"], models={"clip": ModelPool(gpus=gpus, feeders=1)})
