"""Implement `pairmill browse`: serve a lake to a web browser on this machine, until Ctrl-C."""

from argparse import Namespace

from pairmill.flows.browse.application import serve


def browse(args: Namespace) -> int:
    """Print the address and serve until interrupted. Raises PairmillError without a lake or with a port in use."""

    def announce(address: str) -> None:
        print(f"{args.lake} is shown at {address}\nOpen it on this machine; Ctrl-C ends it.", flush=True)

    serve(args.lake, args.port, announce)
    return 0
