"""Make lost rows pending: remove them from `partitions`, from which the next run computes its pending work.

Lost rows of pages are found together with the source units that must be read again.
"""

from collections.abc import Collection
from dataclasses import dataclass

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.score_tables import scores_in
from pairmill.catalog.pending.contents import HOMES, first_occurrence
from pairmill.catalog.pending.quarantine import FORGOTTEN, discount
from pairmill.catalog.terms.declared import scores_of
from pairmill.catalog.upkeep.damages import OF_A_PAGE, OF_ALL_ROWS, READ_AGAIN
from pairmill.catalog.upkeep.recorded_files import LIST, ROWS_LEFT, whole_rows

# Rows in memory at once while homes are restored: 100 MB.
AT_ONCE = 1_000_000
_INDEXED = "SELECT \"commit\" FROM commits WHERE step = 'index contents'"
_KEYS = {"documents": ("document_id",), "images": ("image_id",), "sentences": ("sentence_id",),
         "links": ("document_id", "position")}  # fmt: skip


@dataclass(frozen=True)
class LostPartition:
    """The record of a partition whose rows are lost; ``path`` is its file, '' if it has no file of its own."""

    table: str
    partition_id: str
    commit: int
    rows: int
    path: str


@dataclass(frozen=True)
class LostPages:
    """The lost partitions of one shard, and the source units that they were read from.

    ``units`` are (uri, size, etag, reader) in the order in which they were read, () if that is not recorded.
    """

    shard: str
    source: str
    run_id: str
    units: tuple[tuple[str, int, str, str], ...]
    partitions: tuple[LostPartition, ...]


def drop_repeated_partitions(lake: Lake, of_gone: bool = False) -> None:
    """Delete repeated records of a partition in `partitions`; the first whose file is in the catalog stays.

    ``of_gone``: only of partitions of which the catalog has one file at most, the others having been taken out.
    """
    key, held = '"table", partition_id', f"SELECT DISTINCT path, true AS is_there FROM {LIST} WHERE NOT is_delete"

    def body() -> None:
        again = f"QUALIFY count(*) OVER (PARTITION BY {key}) > 1"
        again += f" AND count(is_there) OVER (PARTITION BY {key}) < 2" if of_gone else ""
        records = f"partitions LEFT JOIN ({held}) USING (path)"
        lake.execute(f"CREATE OR REPLACE TEMP TABLE repeated AS SELECT * FROM {records} {again}")
        lake.execute(f"DELETE FROM partitions WHERE ({key}) IN (SELECT {key} FROM repeated)")
        order = f'ORDER BY {key}, is_there NULLS LAST, "commit", path'
        first = f"SELECT * EXCLUDE (is_there) FROM (SELECT DISTINCT ON ({key}) * FROM repeated {order})"
        lake.execute(f"INSERT INTO partitions BY NAME {first}")
        lake.execute("DROP TABLE repeated")

    lake.retrying(body)


def forget_scores(lake: Lake, table: str, twice: Collection[tuple[str, str]], commit: int) -> int:
    """Make `partitions` agree with the rows of score table ``table``; return the number of rows that become pending.

    A (shard, scorer) group with too many rows is deleted as a whole. ``twice`` are further such groups, in which
    contents were scored twice.
    """
    held = f"SELECT shard, scorer, count(*) AS n FROM {table} GROUP BY ALL"
    recorded = f"SELECT shard, scorer, sum(rows)::BIGINT AS n FROM partitions WHERE \"table\" = '{table}' GROUP BY ALL"
    both = f"({held}) t FULL JOIN ({recorded}) p USING (shard, scorer)"

    def body() -> int:
        for group in twice:
            lake.execute(f"DELETE FROM {table} WHERE shard = ? AND scorer = ?", group)
        surplus = f"SELECT shard, scorer FROM {both} WHERE t.n > coalesce(p.n, 0)"
        lake.execute(f"DELETE FROM {table} WHERE (shard, scorer) IN ({surplus})")
        lake.execute(f"""CREATE OR REPLACE TEMP TABLE {FORGOTTEN} AS SELECT shard, scorer, p.n - coalesce(t.n, 0) AS n
            FROM {both} WHERE p.n > coalesce(t.n, 0)""")
        discount(lake, table, f"{table} repaired {commit}", commit)
        return lake.query(f"SELECT coalesce(sum(n), 0)::BIGINT FROM {FORGOTTEN}")[0][0]

    return lake.retrying(body)


def count_again(lake: Lake, paths: Collection[str]) -> None:
    """Correct `partitions` to the number of rows that these score files have; missing rows become pending."""
    scores = [score.table for score in scores_in(lake)]
    sql = f"""UPDATE partitions SET rows = n_left FROM {ROWS_LEFT} f WHERE partitions.path = f.path AND
        list_contains(?::VARCHAR[], f.path) AND list_contains(?::VARCHAR[], partitions."table")"""
    lake.execute(sql, (list(paths), scores))


def fetched_pictures(lake: Lake, path: str) -> int:
    """Return the number of pictures fetched in the shards of a file of ``fetches``; of all shards if it was merged."""
    shards = "SELECT shard FROM partitions WHERE \"table\" = 'fetches'"
    if lake.query(f"{shards} AND path = ? LIMIT 1", (path,)):
        shards += f" AND path = {quoted(path)}"
    sql = f"SELECT coalesce(sum(rows), 0)::BIGINT FROM partitions WHERE \"table\" = 'payloads' AND shard IN ({shards})"
    return lake.query(sql)[0][0]


def forget_readings(lake: Lake, table: str, unreadable: Collection[str]) -> None:
    """Delete partitions of ``inputs`` or ``fetches`` whose rows are lost, so their units are read or fetched again.

    Pictures stored by a lost fetch are deleted too, because an address may answer with another picture today. Without
    rows of ``inputs``, nothing shows that a shard was read again: its partitions without rows are deleted too, unless a
    file of their table is damaged (``unreadable``). A unit whose last reading is lost gets a row with the etag
    'forgotten' in its place, because a new reading supersedes only documents of units that were read before.
    """

    def body() -> None:
        lost = f"""SELECT shard FROM partitions WHERE "table" = '{table}' AND rows > 0 AND shard NOT IN
            (SELECT shard FROM {table} WHERE shard IS NOT NULL)"""
        lake.execute(f"CREATE OR REPLACE TEMP TABLE lost_readings AS {lost}")
        here = "shard IN (SELECT shard FROM lost_readings)"
        if table == "fetches":
            for stored in ("payloads", "quarantine"):
                lake.execute(f"DELETE FROM {stored} WHERE {here}")
                lake.execute(f"DELETE FROM partitions WHERE \"table\" = '{stored}' AND {here}")
        else:
            for pages in sorted(lake.tables.intersection(OF_A_PAGE).difference(unreadable)):
                held = f'SELECT DISTINCT (shard, "commit") FROM {pages} WHERE {here}'
                lake.execute(f"""DELETE FROM partitions WHERE "table" = '{pages}' AND {here}
                    AND (shard, "commit") NOT IN ({held})""")
            if "documents" not in unreadable:
                recorded = 'coalesce((SELECT max(i."commit") FROM inputs i WHERE i.uri = d.unit), -1)'
                lake.execute(f"""INSERT INTO inputs BY NAME SELECT unit AS uri, arg_max(source, "commit") AS source,
                    0 AS size, 'forgotten' AS etag, 0 AS retries, max("commit") AS "commit" FROM documents d
                    WHERE unit IS NOT NULL GROUP BY unit HAVING max("commit") > {recorded}""")
        lake.execute(f"DELETE FROM partitions WHERE \"table\" = '{table}' AND {here}")
        lake.execute("DROP TABLE lost_readings")

    lake.retrying(body)


def forget_whole(lake: Lake, table: str, scorers: Collection[str] = ()) -> set[str]:
    """Delete all rows and partitions of scorers that lost rows of ``table``, and of the scorers made from these.

    ``scorers`` are further scorers to delete. Returns the digests of all of them. Only tables that a run computes over
    all rows are concerned: no picture is embedded or captioned again.
    """
    among = ", ".join(f"'{name}'" for name in OF_ALL_ROWS)

    def body() -> set[str]:
        lost = f"""SELECT p.scorer FROM (SELECT scorer, sum(rows) AS n FROM partitions
            WHERE "table" = '{table}' GROUP BY ALL) p
            LEFT JOIN (SELECT scorer, count(*) AS n FROM {table} GROUP BY ALL) t USING (scorer)
            WHERE p.n <> coalesce(t.n, 0)"""
        found = {*scorers, *(scorer for (scorer,) in lake.query(lost))}
        made = "SELECT DISTINCT digest, made_from FROM scorers JOIN partitions ON scorer = digest"
        after = lake.query(f'{made} WHERE "table" IN ({among})')
        while more := {digest for digest, sources in after if not found.isdisjoint(sources)} - found:
            found |= more
        for name in OF_ALL_ROWS:
            lake.execute(f"DELETE FROM {name} WHERE scorer IN (SELECT unnest(?::VARCHAR[]))", (sorted(found),))
        gone = f'DELETE FROM partitions WHERE "table" IN ({among}) AND scorer IN (SELECT unnest(?::VARCHAR[]))'
        lake.execute(gone, (sorted(found),))
        return found

    return lake.retrying(body)


def restore_homes(lake: Lake, table: str, bad: Collection[int]) -> int:
    """Insert the lost rows of ``image_content`` or ``sentence_content`` with their former home shard; count them.

    A content's home is the smallest shard among those that were read before its first 'index contents'. If rows of that
    shard are lost too, the content's scores still name it: with another home it would be scored twice. The files
    ``bad`` are not read, and count as lost.
    """
    source, key, *_ = HOMES[table]
    lake.check_tables_of(source)
    of_kind = scores_of(source.removesuffix("s"), scores_in(lake))
    scores = [score.table for score in of_kind if score.table in lake.tables]
    scored = " UNION ALL ".join([f"SELECT {key}, shard FROM {name}" for name in scores])
    first = first_occurrence(table)
    left = whole_rows(lake, table, bad)
    missing = f"""SELECT s.*, i.n FROM (SELECT * FROM {source} ANTI JOIN {left} USING ({key})) s ASOF JOIN
        (SELECT DISTINCT "commit" AS n FROM ({_INDEXED})) i ON s."commit" < i.n
        QUALIFY i.n = min(i.n) OVER (PARTITION BY s.{key})"""
    home = f"""SELECT {key}, min(shard) AS home FROM ({scored}) SEMI JOIN ({source} ANTI JOIN {left} USING ({key}))
        USING ({key}) GROUP BY {key}"""
    sql = f"""SELECT {key}, {first}, coalesce(any_value(home), min(shard)) AS shard, n AS "commit" FROM ({missing})
        LEFT JOIN ({home}) USING ({key}) GROUP BY {key}, n ORDER BY {key}"""
    lake.unchecked(f"CREATE OR REPLACE TEMP TABLE restored AS {sql}")
    n = lake.unchecked("SELECT count(*) FROM restored")[0][0]

    def body() -> None:  # no INSERT ... SELECT: it would verify the damaged files
        for first in range(0, n, AT_ONCE):
            portion = f"SELECT * FROM restored WHERE rowid BETWEEN {first} AND {first + AT_ONCE - 1} ORDER BY rowid"
            lake.insert(table, lake.connection.execute(portion).to_arrow_table())

    lake.retrying(body)
    lake.unchecked("DROP TABLE restored")
    return n


def lost_pages(lake: Lake, tables: Collection[str], paths: Collection[str], bad: Collection[int]) -> list[LostPages]:
    """Return by shard the partitions of ``tables`` whose rows are all gone or whose file is in ``paths``.

    With each shard stand the units of its source to read again. The numbered files ``bad`` are not read. All rows of a
    partition's file count as lost, even if `partitions` records fewer.
    """
    lake.check_tables_of("partitions inputs rereads")
    lake.execute("CREATE OR REPLACE TEMP TABLE lost_paths AS SELECT unnest(?::VARCHAR[]) AS path", (sorted(paths),))
    found: dict[str, list[LostPartition]] = {}
    runs: dict[str, str] = {}
    for table in sorted(set(tables).intersection(OF_A_PAGE)):
        sql = f"""SELECT shard, run_id, partition_id, "commit", greatest(p.rows, coalesce(n_left, 0)), path
            FROM partitions p LEFT JOIN {ROWS_LEFT} USING (path)
            WHERE "table" = '{table}' AND p.rows > 0 AND (path IN (SELECT path FROM lost_paths) OR (shard NOT IN
            ({READ_AGAIN}) AND (shard, "commit") NOT IN (SELECT DISTINCT (shard, "commit") FROM
            {whole_rows(lake, table, bad)} WHERE shard IS NOT NULL))) ORDER BY shard"""
        for shard, run_id, partition_id, commit, rows, path in lake.unchecked(sql):
            found.setdefault(shard, []).append(LostPartition(table, partition_id, commit, rows, path))
            runs[shard] = run_id
    lake.execute("DROP TABLE lost_paths")
    pages = []
    for shard, partitions in found.items():
        sql = "SELECT uri, size, etag, coalesce(reader, ''), source FROM inputs WHERE shard = ? ORDER BY rowid"
        rows = lake.query(sql, (shard,))
        source = rows[0][4] if rows else ""
        pages.append(LostPages(shard, source, runs[shard], tuple(row[:4] for row in rows), tuple(partitions)))
    return pages


def forget_partitions(lake: Lake, lost: LostPages) -> None:
    """Delete the records of lost partitions; the caller commits their new rows, if any, in the same transaction."""
    for each in lost.partitions:
        lake.execute(
            'DELETE FROM partitions WHERE "table" = ? AND partition_id = ? AND shard = ?',
            (each.table, each.partition_id, lost.shard),
        )


def drop_repeated(lake: Lake, lost: LostPages, table: str, rows: pa.Table, bad: Collection[int]) -> pa.Table:
    """Return the re-read ``rows`` that no earlier reading has: the run that compared the two had dropped the others."""
    key = _KEYS.get(table)
    if key is None or not lake.query(f"SELECT 1 FROM ({READ_AGAIN}) WHERE shard = ? LIMIT 1", (lost.shard,)):
        return rows
    commit = min(each.commit for each in lost.partitions if each.table == table)
    numbered = rows.select(key).append_column("n", pa.array(range(rows.num_rows), pa.int64()))
    lake.connection.register("read_again", numbered)
    earlier = f'SELECT {", ".join(key)} FROM {whole_rows(lake, table, bad)} WHERE "commit" < {commit}'
    new = lake.unchecked(f"SELECT n FROM read_again ANTI JOIN ({earlier}) USING ({', '.join(key)}) ORDER BY n")
    lake.connection.unregister("read_again")
    return rows.take([n for (n,) in new])
