"""Run the command line: ``python -m pairmill``."""

import sys

from pairmill.flows.command.cli import main

sys.exit(main())
