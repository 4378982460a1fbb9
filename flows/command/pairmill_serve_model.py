"""Implement `pairmill serve-model`: serve a model by an engine from another environment, until Ctrl-C."""

import tempfile
import time
import urllib.request
from argparse import Namespace
from pathlib import Path

from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.terminal import console, shown
from pairmill.flows.run.model_server import Service, service
from pairmill.flows.with_prefect.processes import start, stop, wait_for

# Reading a model of 17B from a network disk takes minutes, and an engine compiles for some more.
UP_SECONDS = 1800.0


def serve_model(args: Namespace) -> int:
    """Start the engine, wait until it answers, print how a run uses it, and wait for Ctrl-C."""
    screen = console()
    chosen = service(args.spec, args.engine, args.env, args.port, args.gpus, args.max_num_seqs, args.dtype)
    if _answers(chosen):
        raise PairmillError(f"port {chosen.port} has a server already; stop it, or give another port (--port).")
    folder = Path(tempfile.mkdtemp(prefix="pairmill-serve-"))
    child = start(f"{chosen.engine} serve", chosen.command(), chosen.environment(), folder, Path.cwd(), program=())
    try:
        with screen.status(f"{chosen.engine} loads {shown(chosen.model)}; its log is {child.log}"):
            wait_for(child, lambda: _answers(chosen), UP_SECONDS)
        screen.print(f"serving   {shown(chosen.model)} by {chosen.engine}; its log is {child.log}")
        screen.print("to use it, in another terminal:")
        screen.print(
            f"  pairmill run 30m --source pages --set models.captioner={shown(chosen.spec)} "
            f"--model captioner:connections={chosen.connections}"
        )
        screen.print("Ctrl-C stops it.")
        while True:
            child.check()
            time.sleep(1)
    except KeyboardInterrupt:
        screen.print("stopping")
        return 0
    finally:
        stop(child)


def _answers(chosen: Service) -> bool:
    """Return whether the server is healthy."""
    try:
        with urllib.request.urlopen(f"http://{chosen.host}:{chosen.port}/health", timeout=5):
            return True
    except OSError:  # includes HTTPError: a server answers 503 while it loads
        return False
