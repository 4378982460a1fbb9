"""List sources in a separate process, so that a crash or a memory leak there does not hit the run."""

from collections.abc import Callable, Iterator
from itertools import islice

from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Unit
from pairmill.ops.read.places import retries
from pairmill.ops.read.source import Source, SourceError
from pairmill.tasks.run.pool.pool import stream_in_process

# Units per message between the processes: some 2 MB.
AT_ONCE = 10_000
Piece = tuple[list[Unit | Fault], int]


def listed(source: Source) -> Iterator[Unit | Fault]:
    """Yield the units and faults of `Source.listed`, run in a separate process.

    Raises the errors of `Source.listed`, and SourceError when that process dies.
    """
    return _apart(_pieces, source)


def check(source: Source) -> None:
    """Raise SourceError if the source is missing or has nothing to read, checked in a separate process."""
    list(_apart(_check_pieces, source))


def _apart(pieces: Callable[[Source], Iterator[Piece]], source: Source) -> Iterator[Unit | Fault]:
    """Run ``pieces`` in a separate process; yield its units, and add its retried requests to this process's count."""
    try:
        for found, again in stream_in_process(pieces, source):
            retries.add(again)
            yield from found
    except PairmillError as error:
        raise SourceError(f"source '{source.uri}' cannot be listed: {error}") from None


def _pieces(source: Source) -> Iterator[Piece]:
    """Yield the listed units in pieces, each with the number of requests that were retried for it."""
    before, found = retries.count(), source.listed()
    while some := list(islice(found, AT_ONCE)):
        yield some, retries.count() - before
        before = retries.count()


def _check_pieces(source: Source) -> Iterator[Piece]:
    """Check that the source is readable; yield one empty piece with the number of retried requests."""
    before = retries.count()
    source.check()
    yield [], retries.count() - before
