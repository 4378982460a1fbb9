"""Freeze the fork server's objects and set its error handling, when imported: last, before any worker is forked.

All objects created so far are exempt from garbage collection: a collection writes to every object that it visits, and
in a forked worker each write copies a page, 100 MB a worker for torch alone. A worker that lacks memory before it reads
its first row prints no traceback: the run says in one line that its workers died.
"""

import gc
import sys
from types import TracebackType

from pairmill.catalog.lake.literals import work_without_pandas
from pairmill.catalog.terms.lack_of_memory import lack_of_memory


def print_unless_memory_lacks(kind: type[BaseException], error: BaseException, at: TracebackType | None) -> None:
    """Print the traceback of an error, unless its cause is a lack of memory (an ``excepthook``)."""
    if lack_of_memory(error) is None:
        sys.__excepthook__(kind, error, at)


work_without_pandas()  # no worker needs it, and it costs 0.3 CPU s
sys.excepthook = print_unless_memory_lacks
gc.freeze()
gc.enable()
