"""Implement `pairmill mcp`: answer a language model's questions about a lake."""

from argparse import Namespace

from pairmill.catalog.lake.opening import check_is_lake
from pairmill.flows.agents.mcp_server import serve


def mcp(args: Namespace) -> int:
    """Serve until stdin is closed. Raises PairmillError if there is no lake."""
    check_is_lake(args.lake)
    serve(args.lake)
    return 0
