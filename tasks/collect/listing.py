"""List sources in a process of its own: what is met there takes its memory and its life, not the run's."""

from collections.abc import Callable, Iterator
from itertools import islice

from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.fault import Fault
from pairmill.ops.read.document import Unit
from pairmill.ops.read.places import retries
from pairmill.ops.read.source import Source, SourceError
from pairmill.tasks.run.pool import stream_in_process

# Units that cross from one process to the other at once: some 2 MB.
AT_ONCE = 10_000
Piece = tuple[list[Unit | Fault], int]


def listed(source: Source) -> Iterator[Unit | Fault]:
    """List a source as `Source.listed` does. Raises SourceError as that, and when the process that lists it dies."""
    return _apart(_pieces, source)


def check(source: Source) -> None:
    """Raise SourceError unless there is something to read."""
    list(_apart(_checked, source))


def _apart(pieces: Callable[[Source], Iterator[Piece]], source: Source) -> Iterator[Unit | Fault]:
    try:
        for found, again in stream_in_process(pieces, source):
            retries.add(again)
            yield from found
    except PairmillError as error:
        raise SourceError(f"source '{source.uri}' cannot be listed: {error}") from None


def _pieces(source: Source) -> Iterator[Piece]:
    """Yield what is listed by pieces, each with the requests that were made again for it."""
    before, found = retries.made(), source.listed()
    while some := list(islice(found, AT_ONCE)):
        yield some, retries.made() - before
        before = retries.made()


def _checked(source: Source) -> Iterator[Piece]:
    before = retries.made()
    source.check()
    yield [], retries.made() - before
