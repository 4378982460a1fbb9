"""Find rows that count twice or are missing, and pairs that cross splits; name the step that recomputes lost rows.

Tables are compared with what `partitions` records. Each statement reads one snapshot, so a run may commit meanwhile.
Tables with damaged files are left out: DuckDB would read wrong rows from them. Groups of a large table are aggregated
on disk where memory is insufficient.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Literal

from pairmill.catalog.cut.splits import HOST, links
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.score_tables import scores_in
from pairmill.catalog.pending.contents import HOMES
from pairmill.catalog.queries.datasets import published
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.scores import HEAD
from pairmill.catalog.upkeep.recorded_files import LIST, ROWS_LEFT, still_named

# 'gone': the file is missing. 'damaged': other bytes than were written, or not readable. 'doubled': rows that count
# twice. 'counts': fewer or more rows than `partitions` records. 'source': the lake refers to bytes that are gone.
# 'unfinished': a removal that was killed or hindered. 'leak': a group of pairs crosses the splits of a version.
Trouble = Literal["gone", "damaged", "doubled", "counts", "source", "unfinished", "leak"]
# 'source': read the pages again. 'run': the next run finds the rows pending. 'whole': as 'run', for all rows of the
# scorer and of those made from it. 'home': computed from the images or sentences. 'copy': only a copy has them.
Redone = Literal["source", "run", "whole", "home", "copy"]
# The most damages of one kind that a check lists.
MOST = 100_000
OF_A_PAGE = ("documents", "images", "sentences", "payloads", "links")
OF_ALL_ROWS = ("centroids", "clusters", "vector_index", "match_candidates", "duplicate_edges", "image_groups",
               "sentence_edges", "sentence_groups", "word_counts", "word_probabilities", "noun_counts",
               "tag_words")  # fmt: skip
_HOW: dict[str, str] = {
    "source": "--repair reads those pages again",
    "run": "the next run does them again",
    "whole": "the next run does all rows of their scorer again",
    "home": "--repair computes them from the rows that are there",
    "copy": "nothing here can make them again: put the file back from a copy of the lake",
}
# Files of workers lie in a folder of their run; files that DuckDB writes or merges lie in the table's own folder.
_DEPTH = 3  # slashes in the paths of workers' files
_OF_WORKERS = f"NOT is_delete AND len(path) - len(replace(path, '/', '')) = {_DEPTH}"
READ_AGAIN = "SELECT shard FROM inputs i JOIN rereads r ON r.unit = i.uri AND r.commit = i.commit"


@dataclass(frozen=True)
class Damage:
    """One damage to a lake.

    ``rows`` is the number of affected rows, ``ids`` DuckLake's numbers of the data files that a repair removes from the
    catalog; ``shard`` and ``scorer`` are the group of rows if the damage is not of a file.
    """

    trouble: Trouble
    table: str
    detail: str
    rows: int
    path: str = ""
    ids: tuple[int, ...] = ()
    shard: str | None = None
    scorer: str | None = None

    @property
    def is_of_worker(self) -> bool:
        """Whether a worker wrote the damaged file; DuckDB writes the others, merged files among them."""
        return self.path.count("/") == _DEPTH

    @property
    def is_repairable(self) -> bool:
        """Whether a repair helps: rows are superfluous, or lost rows can be computed or read again."""
        return self.trouble in ("doubled", "unfinished") or (
            self.trouble not in ("source", "leak") and redone_by(self.table) != "copy"
        )


def redone_by(table: str) -> Redone:
    """Return how lost rows of a table are recovered: 'run', 'source', 'whole', 'home', or 'copy' from a backup."""
    if table in OF_A_PAGE:
        return "source"
    if table in OF_ALL_ROWS:
        return "whole"
    if table in HOMES:
        return "home"
    if table in ("inputs", "fetches") or table.startswith(HEAD) or any(score.table == table for score in declared()):
        return "run"
    return "copy"


def describe(lake: Lake, damage: Damage) -> str:
    """Return a damage as one line: the trouble, the table and file, the loss and its cost, the remedy."""
    place = damage.path.removeprefix("main/") or damage.table
    if damage.trouble in ("source", "leak"):
        return f"{damage.trouble:<8}{place}: {damage.detail}"
    if damage.trouble == "unfinished":
        return f"{damage.trouble} {damage.detail}; --repair and `pairmill maintain` finish it"
    how = "--repair removes what is superfluous" if damage.trouble == "doubled" else _HOW[redone_by(damage.table)]
    return f"{damage.trouble:<8}{place}: {damage.detail}; {damage.rows:,} rows{_cost(lake, damage)}; {how}"


def _cost(lake: Lake, damage: Damage) -> str:
    """Return the work that the rows of a lost file took, as the workers measured it; '' if nothing is recorded."""
    if not damage.path or damage.trouble == "doubled":
        return ""
    sql = "SELECT coalesce(sum(seconds), 0), count(DISTINCT shard) FROM partitions WHERE path = ?"
    seconds, shards = lake.query(sql, (damage.path,))[0]
    return f" of {shards} shard{'s'[: shards != 1]}, {seconds:,.1f} s of work" if shards else ""


def find_doubled(lake: Lake) -> Iterator[Damage]:
    """Yield a damage for each file registered twice or in no partition, and each partition recorded twice."""
    twice = f"SELECT table_name, path, max(rows), list(id ORDER BY id) FROM {LIST} WHERE NOT is_delete GROUP BY ALL"
    for table, path, rows, ids in lake.query(f"{twice} HAVING count(*) > 1"):
        yield Damage("doubled", table, "the file is registered twice", rows * (len(ids) - 1), path, tuple(ids[1:]))
    extra = f"""SELECT table_name, path, rows, id FROM {LIST} f WHERE {_OF_WORKERS} AND table_name IN
        (SELECT DISTINCT "table" FROM partitions) AND path NOT IN (SELECT path FROM partitions WHERE path <> '')
        ORDER BY path LIMIT {MOST}"""
    found = lake.query(extra)
    named = still_named(lake, [each[3] for each in found])
    for table, path, rows, number in found:
        if number in named:
            yield Damage("doubled", table, "the file belongs to no partition", rows, path, (number,))
    again = 'SELECT "table", partition_id FROM partitions GROUP BY ALL HAVING count(*) > 1'
    records = f"""SELECT p."table", max(p.rows), list(DISTINCT p.path ORDER BY p.path)
        FROM partitions p
        SEMI JOIN ({again}) a ON a."table" = p."table" AND a.partition_id = p.partition_id
        GROUP BY p."table", p.partition_id ORDER BY ALL"""
    for table, rows, paths in lake.query(records):
        among = ", ".join(f"'{path}'" for path in paths)
        ids = lake.unchecked(f"SELECT id FROM {LIST} WHERE NOT is_delete AND path IN ({among}) ORDER BY path")
        text = "the partition is recorded twice"  # one of its files stays, if there is any
        yield Damage("doubled", table, text, rows, paths[-1], tuple(number for (number,) in ids[1:]))


def find_miscounted(lake: Lake, without: Collection[str], deep: bool) -> Iterator[Damage]:
    """Yield a damage for each file or group whose number of rows differs from `partitions`; skip tables ``without``.

    ``without`` are tables with damaged files. A file may be recorded with or without its deleted rows: deleted score
    rows are subtracted by a record of their own, rows of re-read pages are not. ``deep`` also counts the keys that have
    two rows of one scorer.
    """
    wrong = f"""SELECT p."table", path, p.rows, f.rows, n_left, id FROM partitions p JOIN {ROWS_LEFT} f USING (path)
        WHERE p.rows NOT BETWEEN n_left AND f.rows"""
    for table, path, recorded, held, left, number in lake.query(wrong):
        deleted = f", {held - left:,} of them deleted" if left < held else ""
        text = f"the file has {held:,} rows{deleted}, and `partitions` records {recorded:,}"
        yield Damage("counts", table, text, max(recorded, left), path, (number,))
    recorded = {table for (table,) in lake.query('SELECT DISTINCT "table" FROM partitions')}
    keys = {score.table: "" if score.by_input or score.of == "pair" else score.key for score in scores_in(lake)}
    columns = "SELECT table_name, list(column_name) FROM duckdb_columns() WHERE database_name = 'lake' GROUP BY ALL"
    names = {table: set(of_table) for table, of_table in lake.query(columns)}
    for table in sorted(recorded & {*keys, *OF_ALL_ROWS, *OF_A_PAGE, "inputs"} & lake.tables - set(without)):
        yield from _groups(lake, table, names[table])
        if deep and (key := keys.get(table)):
            twice = f"SELECT shard, scorer, count(*) - count(DISTINCT {key}) AS n FROM {table} GROUP BY ALL"
            for shard, scorer, n in lake.query(f"{twice} HAVING n > 0 ORDER BY ALL"):
                text = f"{n:,} contents of shard {shard} have two rows of one scorer"
                yield Damage("doubled", table, text, n, shard=shard, scorer=scorer)


def _groups(lake: Lake, table: str, names: Collection[str]) -> Iterator[Damage]:
    """Yield the shards and scorers of which a table has another number of rows than `partitions` records.

    ``names`` are the table's columns.
    Rows of pages may be fewer, because those of pages that were read again are deleted, but not all may be missing.
    Rows of a commit without a partition were computed by SQL and have no record.
    """
    by = [name for name in ("shard", "scorer") if name in names]
    group = ", ".join(by) or "1"
    matched = " AND ".join(f"t.{name} IS NOT DISTINCT FROM p.{name}" for name in by) or "true"
    of_page = table in OF_A_PAGE
    by_commit = ', "commit"' if of_page else ""
    differ = "t.n > p.n" if of_page else "coalesce(t.n, 0) <> p.n"
    if of_page:
        matched += ' AND t."commit" = p."commit"'
        differ += f" OR (t.n IS NULL AND p.n > 0 AND p.shard NOT IN ({READ_AGAIN}))"
    recorded = f"SELECT {group}{by_commit}, sum(rows) AS n FROM partitions WHERE \"table\" = '{table}' GROUP BY ALL"
    held = f"SELECT {group}{by_commit}, count(*) AS n FROM {table} GROUP BY ALL"
    shard, scorer = (f"p.{name}" if name in by else "NULL" for name in ("shard", "scorer"))
    sql = f"""SELECT {shard}, {scorer}, coalesce(t.n, 0), p.n FROM ({recorded}) p LEFT JOIN ({held}) t ON {matched}
        WHERE {differ} ORDER BY ALL"""
    for shard, scorer, n, recorded in lake.query(sql):
        where = f"shard {shard}" if shard else f"scorer {scorer}"
        text = f"{where} has {n:,} rows, and `partitions` records {recorded:,}"
        trouble = "doubled" if of_page and n > recorded else "counts"
        yield Damage(trouble, table, text, abs(n - recorded), shard=shard, scorer=scorer)


def find_leaks(lake: Lake) -> Iterator[Damage]:
    """Yield a damage for each version and kind of link whose groups have pairs in several splits.

    If no linked pairs differ in their split, no group crosses. Near copies are those known when the version was
    published: groups that merge later are no fault of it.
    """
    for dataset in published(lake):
        if "split" not in dataset.optional_columns:
            continue
        recipe, groups = Recipe.model_validate_json(dataset.recipe), dataset.scorers_by_name(lake).get("image_groups")
        lake.execute(f"""CREATE OR REPLACE TEMP TABLE leak_nodes AS SELECT row_number() OVER () AS node, sha256,
            document_id, {HOST} AS host, split FROM pairs WHERE {dataset.where}""")
        told = set[str]()
        for kind, sql in links(recipe, groups or "", "leak_nodes", f' AND "commit" <= {dataset.commit}'):
            if kind in told:  # near copies have two kinds of links
                continue
            crossing = f"""SELECT count(*) AS n, arg_min(sha256, split) AS a, min(split), arg_max(sha256, split) AS b,
                max(split) FROM ({sql}) JOIN leak_nodes USING (node) GROUP BY key HAVING min(split) <> max(split)"""
            found = lake.query(f"SELECT count(*) OVER (), sum(n) OVER (), * FROM ({crossing}) ORDER BY a, b LIMIT 1")
            for keys, rows, _, a, of_a, b, of_b in found:
                text = (
                    f"{keys:,} groups of {kind} of {dataset} cross its splits, such as {a} in {of_a} and {b} in "
                    f"{of_b}; `pairmill recut` publishes a version without"
                )
                told.add(kind)
                yield Damage("leak", "pairs", text, int(rows))
        lake.execute("DROP TABLE leak_nodes")
