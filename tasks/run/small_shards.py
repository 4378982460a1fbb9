"""Join work items of small shards into one, so that a model has whole batches of them.

A late wave asks for texts of a few pictures of each of thousands of shards, and an ingest a day brings small shards:
item by item a card would have batches of one, and a server few requests at once. Of 100 shards of two pictures a server
that takes half a second for each answered 10 to 11 a second, and 24 to 38 of the same joined (two CPUs, in turn). What
comes of a joined item is written as if they had not been joined, a partition a shard (`tasks.run.partition`), so that a
run goes on whichever way they were when it was killed.
"""

from collections.abc import Iterator, Sequence

from pairmill.catalog.pending.item import WorkItem, join

# Fewer make no batch: below this a share of the work for every replica is worth less than full batches.
LEAST_ROWS = 64


def join_small(items: Sequence[WorkItem], most_rows: int, workers: int) -> list[WorkItem]:
    """Join neighbours in the list to items of up to ``most_rows`` rows, or of as few as leave an item for each of
    ``workers``. Items that lack other scores are not joined; larger ones stay as they are."""
    total = sum(len(item.keys) for item in items)
    most = min(most_rows, max(LEAST_ROWS, -(-total // max(1, workers))))
    return [join(run) for run in _runs(items, most)]


def _runs(items: Sequence[WorkItem], most: int) -> Iterator[list[WorkItem]]:
    run: list[WorkItem] = []
    rows = 0
    for item in items:
        if run and (rows + len(item.keys) > most or item.tables != run[0].tables):
            yield run
            run, rows = [], 0
        run.append(item)
        rows += len(item.keys)
    if run:
        yield run
