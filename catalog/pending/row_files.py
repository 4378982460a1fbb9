"""Find the data files that hold rows of some shards or of a scorer, for workers, which open files by their paths.

`partitions` records the file of each partition. `pairmill maintain` and removals write the rows of several files into a
new one: a *joined* file, which is in no partition. Its own rows tell of which shards and scorers they are. They are
asked once for each round of a work list that has shards of joined files, at some 5 ms a file: 10,000 joined files, or
80 GB that came in files of less than 8 MB, take a minute a round.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted

# The largest index of which a worker holds all rows: some 16,000 vectors of 512 dimensions.
SMALL_BYTES = 16_000_000


def paths_by_shard(
    lake: Lake, table: str, shards: Iterable[str], scorer: str | None = None
) -> dict[str, tuple[str, ...]]:
    """Return, by shard, the absolute paths of the files with its rows of ``table``, of ``scorer`` if it is given.

    The files may hold rows of other shards, and deleted rows: workers take the rows of their keys, the newest of each.
    Files of tables that DuckLake merges may hold rows of other scorers too. Raises Damaged; not for ``payloads``,
    because each image is verified when it is read.
    """
    if not (wanted := sorted(set(shards))):
        return {}
    if table != "payloads":
        lake.check_files(table)
    found: defaultdict[str, list[str]] = defaultdict(list)
    which = "" if scorer is None else f" AND scorer = {quoted(scorer)}"
    for shard, path in _places(lake, table, which, wanted)[0]:
        found[shard].append(path)
    return {shard: tuple(found[shard]) for shard in wanted}


@dataclass(frozen=True)
class IndexFiles:
    """Files of one vector index, each sorted by cluster; ``is_small`` if all their rows fit in a worker's memory."""

    paths: tuple[str, ...]
    is_small: bool


def index_files(lake: Lake, scorer: str) -> IndexFiles:
    """Return the files that hold the vectors which ``scorer`` assigned to clusters."""
    lake.check_files("vector_index")
    found, size = _places(lake, "vector_index", f" AND scorer = {quoted(scorer)}")
    return IndexFiles(tuple(path for _, path in found), size <= SMALL_BYTES)


def newest_paths(lake: Lake, table: str, scorer: str) -> tuple[str, ...]:
    """Return the files of a scorer's last commit to ``table``, whose commits are complete snapshots."""
    of_scorer = f" AND scorer = {quoted(scorer)}"
    newest = f'SELECT max("commit") FROM partitions WHERE "table" = {quoted(table)} AND rows > 0{of_scorer}'
    lake.check_files(table)
    return tuple(path for _, path in _places(lake, table, f'{of_scorer} AND "commit" = ({newest})')[0])


def _places(lake: Lake, table: str, which: str, shards: list[str] | None = None) -> tuple[list[tuple[str, str]], int]:
    """Return (shard, absolute path) of the files with rows of ``shards`` that meet ``which``, by path, and their bytes.

    ``which`` is SQL on columns of the table that `partitions` has too; without ``shards``, the shard is ''.
    """
    shard = "''" if shards is None else "shard"
    among = "" if shards is None else f" AND shard IN ({', '.join(map(quoted, shards))})"
    lake.check_files("partitions")  # the statements name ``table`` but read no file of it
    recorded = lake.unchecked(f"""SELECT {shard}, path, coalesce(bytes, 0), path IN (SELECT data_file
        FROM ({snapshot.files_sql((table,))})) FROM partitions WHERE "table" = {quoted(table)} AND rows
        > 0{which}{among}""")
    found = {(shard, lake.data_path + path) for shard, path, _, is_current in recorded if is_current}
    if not all(is_current for *_, is_current in recorded):
        now = {file.data_file for file in snapshot.files(lake.unchecked, (table,))}
        known = lake.query("SELECT path FROM partitions WHERE \"table\" = ? AND path <> ''", (table,))
        if joined := now.difference(path for (path,) in known):
            files = ", ".join(quoted(lake.data_path + path) for path in sorted(joined))
            rows = f"SELECT DISTINCT {shard}, filename FROM read_parquet([{files}]) WHERE true{which}"
            wanted = {""} if shards is None else set(shards)
            found.update(row for row in lake.unchecked(rows) if row[0] in wanted)
    return sorted(found, key=lambda place: place[1]), sum(size for _, _, size, _ in recorded)
