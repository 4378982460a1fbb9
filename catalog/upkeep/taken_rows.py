"""Delete the rows of what a takedown removes from every table, and keep `partitions` equal to what is left.

Older snapshots and the files still hold the rows: `tasks.upkeep.erase` removes those.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pairmill.catalog.lake.arrow import arrow_schema
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.score_tables import scores_in
from pairmill.catalog.lake.table_meanings import REMOVED_BY
from pairmill.catalog.pending.quarantine import FORGOTTEN, discount
from pairmill.catalog.upkeep.taken_items import named

if TYPE_CHECKING:
    import pyarrow as pa

    from pairmill.catalog.write.lease import Writer

AT_ONCE = 100_000  # rows of a rewritten file in memory

# SQL for whether a column names a taken item, by the kind of item.
_NAMES = {
    "picture": "{0} IN (SELECT sha256 FROM taken_pictures)",
    "image": "{0} IN (SELECT image_id FROM taken_images)",
    "document": "{0} IN (SELECT document_id FROM taken_documents)",
    "sentence": "{0} IN (SELECT content FROM taken_sentences)",
    "text": "{0} IN (SELECT text FROM taken_sentences UNION ALL SELECT text FROM taken_fused)",
    "unit": "{0} IN (SELECT unit FROM taken_units)",
}
_DOCUMENT = _NAMES["document"].format("document_id")
# A fused text made from a taken sentence goes, the scores of it too; the next run makes all again.
_FUSED = "(sha256, input_digest) IN (SELECT (sha256, input_digest) FROM taken_fused)"
_OF_FUSED = "sha256 IN (SELECT sha256 FROM taken_fused)"


def conditions(lake: Lake) -> Iterator[tuple[str, str]]:
    """Yield (table, condition of its taken rows) for the lake's tables with a declaration."""
    for table, columns in REMOVED_BY.items():
        if table in lake.tables:
            yield table, _names_taken(columns)
    for score in scores_in(lake):
        if score.table in lake.tables and score.table not in REMOVED_BY:
            where = _names_taken(score.removed_by)
            fused = _FUSED if score.table == "synthetic" else _OF_FUSED if score.table.startswith("synthetic_") else ""
            yield score.table, f"({where} OR {fused})" if fused else where


def _names_taken(columns: Mapping[str, str]) -> str:
    """Return SQL for whether one of these columns names a taken item of its kinds."""
    found = [
        named(column) if kind == "address" else _NAMES[kind].format(column)
        for column, kinds in columns.items()
        for kind in kinds.split()
    ]
    return f"({' OR '.join(found)})"


def delete_rows(lake: Lake, commit: int) -> dict[str, int]:
    """Delete the taken rows, within a transaction of the caller; return the number by table.

    Works in one pass over each table's key columns.
    """
    units = f"SELECT DISTINCT unit FROM documents WHERE {_DOCUMENT} AND unit NOT IN " \
            f"(SELECT unit FROM documents WHERE unit IS NOT NULL AND NOT {_DOCUMENT})"  # fmt: skip
    lake.execute(f"CREATE OR REPLACE TEMP TABLE taken_units AS {units}")
    found = {}
    # `documents` last: the conditions of the others may read it.
    for table, where in sorted(conditions(lake), key=lambda each: each[0] == "documents"):
        if n := lake.query(f"SELECT count(*) FROM {table} WHERE {where}")[0][0]:
            _delete(lake, table, where, commit)
            found[table] = n
    return found


def _delete(lake: Lake, table: str, where: str, commit: int) -> None:
    """Delete rows of one table, and subtract them from `partitions`."""
    names = {name for name, *_ in lake.query(f"DESCRIBE {table}")}
    shard = "shard" if "shard" in names else "'all' AS shard"  # rows over all shards are recorded under that name
    by = ["scorer"] if "scorer" in names else ['"commit"'] if "shard" in names else []
    if by:
        counted = f"SELECT {shard}, {by[0]}, count(*) AS n FROM {table} WHERE {where} GROUP BY ALL"
        lake.execute(f"CREATE OR REPLACE TEMP TABLE {FORGOTTEN} AS {counted}")
    lake.execute(f"DELETE FROM {table} WHERE {where}")
    if by == ["scorer"] and "shard" in names:
        discount(lake, table, f"{table} taken down {commit}", commit)
    elif by == ["scorer"]:
        _discount_all(lake, table, commit)
    elif by:
        _discount_pages(lake, table)


def _discount_all(lake: Lake, table: str, commit: int) -> None:
    """Subtract rows that were computed over all shards, and have no column of a shard."""
    lake.execute(
        'INSERT INTO partitions BY NAME SELECT ? AS "table", md5(concat(?, scorer)) AS partition_id, shard, scorer, '
        "-n AS rows, 0 AS bytes, 0.0 AS seconds, '' AS run_id, ? AS \"commit\", '' AS path "
        f"FROM {FORGOTTEN}",
        (table, f"{table} taken down {commit}", commit),
    )
    _forget_paths(lake, table)


def _discount_pages(lake: Lake, table: str) -> None:
    """Subtract rows of pages: each shard and commit has one partition of the table."""
    lake.execute(
        f"UPDATE partitions SET rows = partitions.rows - t.n FROM {FORGOTTEN} t WHERE partitions.\"table\" = '{table}' "
        'AND partitions.shard = t.shard AND partitions."commit" = t."commit" AND partitions.rows >= t.n'
    )
    _forget_paths(lake, table)


def _forget_paths(lake: Lake, table: str) -> None:
    """Forget the paths of files of which no row is left: DuckLake removes them."""
    paths = f"SELECT DISTINCT filename FROM {table}"
    lake.execute(
        f"UPDATE partitions SET path = '' WHERE \"table\" = '{table}' AND path <> '' "
        f"AND concat(?, path) NOT IN ({paths})",
        (lake.data_path,),
    )


@dataclass(frozen=True)
class PartitionFile:
    """The file of a partition: its path relative to the data path, its rows, its bytes."""

    path: str
    rows: int
    bytes: int


def rows_left(lake: Lake, table: str, path: str) -> "Iterator[pa.Table]":
    """Yield the rows of a data file that are not deleted, in their order, AT_ONCE at a time."""
    import pyarrow as pa

    schema = arrow_schema(table)
    columns, here = ", ".join(f'"{name}"' for name in schema.names), _of_file(lake, path)
    for batch in lake.blocks(f"SELECT {columns} FROM {table} WHERE {here} ORDER BY rowid", rows=AT_ONCE):
        yield pa.Table.from_batches([batch]).cast(schema)


def replace_file(writer: "Writer", table: str, path: str, file: PartitionFile) -> None:
    """Register ``file`` in place of the data file at ``path``, in one transaction. Raises LeaseLost."""
    lake = writer.lake

    def body() -> None:
        writer.check()
        lake.execute(f"DELETE FROM {table} WHERE {_of_file(lake, path)}")
        lake.execute("CALL ducklake_add_data_files('lake', ?, ?)", (table, [lake.data_path + file.path]))
        _rename_partition(lake, table, path, file)

    lake.retrying(body)


def _of_file(lake: Lake, path: str) -> str:
    """Return SQL for whether a row is of the data file at ``path``."""
    return f"filename = {quoted(lake.data_path + path)}"


def _rename_partition(lake: Lake, table: str, path: str, file: PartitionFile) -> None:
    """Record that a partition's file was replaced by one of the rows that are left, within a transaction.

    Rows that were subtracted from the partition's group by a record of their own are subtracted from the partition.
    """
    where = '"table" = ? AND path = ?'
    for shard, scorer, rows in lake.query(f"SELECT shard, scorer, rows FROM partitions WHERE {where}", (table, path)):
        lake.execute(f"UPDATE partitions SET path = ?, rows = ?, bytes = ? WHERE {where}",
                     (file.path, file.rows, file.bytes, table, path))  # fmt: skip
        group = '"table" = ? AND shard = ? AND scorer = ? AND rows < 0'
        newest = f'SELECT max("commit") FROM partitions WHERE {group}'
        lake.execute(f'UPDATE partitions SET rows = rows + ? WHERE {group} AND "commit" = ({newest})',
                     (rows - file.rows, *(table, shard, scorer) * 2))  # fmt: skip
        lake.execute(
            f"DELETE FROM partitions WHERE {group.replace('< 0', '= 0')} AND path = ''", (table, shard, scorer)
        )
