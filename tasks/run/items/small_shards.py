"""Join work items of small shards into larger ones, so that a model gets full batches.

A late wave requests texts for a few images in each of thousands of shards, and a daily ingest brings small shards. Item
by item a GPU would run batches of one, and a server would get few concurrent requests: of 100 shards of two images, a
server that takes half a second a request answered 10 to 11 images a second, and 24 to 38 with joined items (two CPUs,
in turn). The output of a joined item is still written as one partition per shard (`items.partition`), so a killed
run resumes whether or not its items were joined.
"""

from collections.abc import Iterator, Sequence

from pairmill.catalog.pending.item import WorkItem, join

# Rows below which full batches are worth more than an item for every replica.
LEAST_ROWS = 64


def join_small(items: Sequence[WorkItem], most_rows: int, workers: int) -> list[WorkItem]:
    """Join neighbouring items into items of at most ``most_rows`` rows, but leave an item for each of ``workers``.

    The second condition ends at LEAST_ROWS rows an item. Items are joined only if they lack the same scores. An item
    larger than the limit stays as it is.
    """
    total = sum(len(item.keys) for item in items)
    most = min(most_rows, max(LEAST_ROWS, -(-total // max(1, workers))))
    return [join(run) for run in _runs(items, most)]


def _runs(items: Sequence[WorkItem], most: int) -> Iterator[list[WorkItem]]:
    """Yield runs of neighbouring items that lack the same scores and have at most ``most`` rows together."""
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
