"""Run the stage's own search over a vector index on disk: ``python -m infra.bench.peers.search_ranges FOLDER K N``.

FOLDER holds ``sentences-*.parquet`` and ``routes.parquet`` as ``tasks.relate.cluster.Index`` writes them, with K
clusters over N sentences. It searches one cluster range after another, as a worker does, and prints the number of
candidates.
"""

import sys
from pathlib import Path

import torch

from pairmill.catalog.pending.index_ranges import ranges
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.row_files import IndexFiles
from pairmill.catalog.pending.training import Trained
from pairmill.tasks.relate.associate import Search


def main(folder: str, k: str, n: str) -> None:
    """Search all ranges and print the number of candidates."""
    torch.set_num_threads(1)
    sentences = tuple(str(path) for path in sorted(Path(folder).glob("sentences-*.parquet")))
    files = [IndexFiles(paths, is_small=False) for paths in (sentences, (f"{folder}/routes.parquet",))]
    found = 0
    for span in ranges(Trained("", int(n), "", int(k))):
        item = WorkItem(str(span), (), inputs={"range": span, "done": -1, "files": files, "groups": (), "known": ()})
        found += sum(part.rows.num_rows for part in Search(12, "scorer")(item))
    print(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
