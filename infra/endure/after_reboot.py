"""Run `pairmill` as after a restart of the machine: the id of the boot is another one than a lake's files know.

The lease still knows this boot, so that a dead holder is replaced at once; of another boot it is waited for, 90 s.
"""

import sys

from pairmill.catalog.lake import seal
from pairmill.catalog.lake.host import host_since_boot


def reboot() -> None:
    """Let this process check seals as after a restart."""
    seal.host_since_boot = lambda: f"{host_since_boot()} again"


if __name__ == "__main__":
    from pairmill.flows.command.cli import main

    reboot()
    sys.exit(main(sys.argv[1:]))
