"""List the pictures whose inputs of a score have changed since it was computed, by a digest of these inputs.

Inputs change by new rows alone: of the picture, or of a document that shows it. Every row has a commit number. If each
table that a list reads or fills has as many rows up to a commit as when the list was finished there, rows were only
added since, and only the pictures of the newer ones are compared. A removal, a forgotten scorer or a retry takes rows
away, and another rule makes another list: then all pictures are, in rounds, as their texts cannot be spilled.

Finished lists are recorded with those of :mod:`catalog.pending.asked_shards`, in lakes of as many rows. Idle, a list
takes some statements; with new rows, a pass over the document ids of all images.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

from pairmill.catalog.lake import snapshot
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.snapshot import RowCounts
from pairmill.catalog.pending import asked_shards
from pairmill.catalog.pending.eligible import candidates, current_scores, image_rows
from pairmill.catalog.pending.item import WorkItem
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.worklist import REPLACED, items_by_shard, rounds, stale_rows, vector_files
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.write.recorded_removals import last_removal

# The pictures that a round compares. `list_changed` gives its query '' for all, or this condition on ``sha256``.
AMONG = "sha256 IN (SELECT sha256 FROM changed_pictures)"
HELD = 4  # pictures of a round count as so many keys: DuckDB holds their texts too
OF_DOCUMENTS = ("documents", "superseded")
OCCURRENCES = (*OF_DOCUMENTS, "image_content", "images")
OWN_CAPTION = "own_caption"  # the key in `documents.metadata`


def pending_similarity(lake: Lake, plan: Plan) -> Iterator[list[WorkItem]]:
    """Yield work items: images whose alt texts or best candidate are not those of their row in ``image_similarity``."""

    def stale(only: str) -> str:
        rows = image_rows(plan, Stage.ASSOCIATE, among="changed_pictures" if only else "")
        wanted = f"""WITH eligible AS (SELECT sha256, list(DISTINCT trim(alt_text) ORDER BY trim(alt_text))
                FILTER (trim(coalesce(alt_text, '')) <> '') AS alts FROM ({rows}) WHERE dropped_by = ''
                GROUP BY sha256),
            best AS (SELECT sha256, max(similarity) AS similarity FROM {candidates(plan)}{_where(only)} GROUP BY sha256)
            SELECT v.shard, v.sha256, coalesce(e.alts, []) AS alt_texts, b.similarity AS match_similarity,
                left(sha256(coalesce(CAST(b.similarity AS VARCHAR), '') || chr(31)
                    || array_to_string(coalesce(e.alts, []), chr(31))), 32) AS digest
            FROM {current_scores(plan, "image_embedding", "sha256", only=only)} v
            JOIN eligible e ON e.sha256 = v.sha256 LEFT JOIN best b ON b.sha256 = v.sha256
            WHERE v.image_vector IS NOT NULL"""
        scored = current_scores(plan, "image_similarity", "sha256", only=only)
        return stale_rows(plan, "image_similarity", wanted, scored)

    early = [table.table for table in plan.image_tables[1:] if table.stage < Stage.ASSOCIATE]
    reads, inputs = ("image_embedding", "match_candidates", *early), ("alt_texts", "match_similarity", *REPLACED)
    return list_changed(lake, "image_similarity", reads, stale, vector_files(lake, plan), inputs)


def pending_rights(lake: Lake, plan: Plan) -> Iterator[list[WorkItem]]:
    """Yield work items: pictures of which files or documents state other rights than when `rights` was computed."""
    sql = Template((Path(__file__).parent / "rights.sql").read_text("utf-8"))

    def stale(only: str) -> str:
        claims = current_scores(plan, "file_claims", "sha256", only=only)
        wanted = sql.substitute(gone=gone_documents(), claims=claims, shown=f"(SELECT * FROM images{_where(only)})")
        return stale_rows(plan, "rights", wanted, current_scores(plan, "rights", "sha256", only=only))

    inputs = ("documents", "claims", *REPLACED)
    return list_changed(lake, "rights", ("file_claims",), stale, lambda _: defaultdict(tuple), inputs)


def pending_own_captions(lake: Lake, scorer: str) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items by home shard: pictures whose own caption is not in ``scorer``'s newest row.

    A reader that reads captions as captions stores the caption of a document with one picture in the document's
    metadata, under OWN_CAPTION. A picture of several documents has the caption of the first by image id. Every picture
    has a row, with an empty text where no document has a caption. The input ``texts`` has the captions, '' for none;
    ``before`` the commit of the newest row, for `WorkItem.digest`.
    """

    def stale(only: str) -> str:
        where = _where(only)
        documents = (
            f"SELECT document_id, json_extract_string(metadata, '$.{OWN_CAPTION}') AS text FROM documents "
            f"WHERE contains(metadata, '\"{OWN_CAPTION}\"') AND document_id NOT IN {gone_documents()}"
        )
        shown = f"(SELECT * FROM images{where}) JOIN ({documents}) USING (document_id)"
        own = f"SELECT sha256, arg_min(text, image_id) AS text FROM {shown} GROUP BY sha256"
        newest = (
            'SELECT sha256, arg_max(text, "commit") AS text, max("commit") AS since '
            f"FROM (SELECT * FROM captions{where}) WHERE scorer = '{scorer}' GROUP BY sha256"
        )
        return (
            "SELECT c.shard, c.sha256 AS key, coalesce(o.text, '') AS texts, coalesce(n.since, -1) AS before "
            f"FROM (SELECT * FROM image_content{where}) c LEFT JOIN ({own}) o USING (sha256) "
            f"LEFT JOIN ({newest}) n USING (sha256) WHERE n.text IS DISTINCT FROM coalesce(o.text, '')"
        )

    return list_changed(lake, "captions", (), stale, lambda _: defaultdict(tuple), ("texts", "before"))


def _where(only: str) -> str:
    """Return the SQL condition ``only`` as a WHERE clause, '' without a condition."""
    return f" WHERE {only}" if only else ""


def list_changed(
    lake: Lake,
    filled: str,
    reads: Sequence[str],
    stale: Callable[[str], str],
    paths_of: Callable[[list[str]], Mapping[str, tuple[str, ...]]],
    inputs: Sequence[str],
) -> Iterator[list[WorkItem]]:
    """Yield rounds of work items: the rows of SQL ``stale`` for pictures with new rows, or for all without a record.

    ``stale`` maps a condition on ``sha256``, '' for none, to that SQL. Workers add a row of ``filled`` for each key; if
    all keys have got theirs, the list is recorded as finished. ``reads`` are the tables with ``sha256`` that the SQL
    reads besides OCCURRENCES; ``paths_of`` and ``inputs`` as in `items_by_shard`.
    """
    if lake.largest < asked_shards.WORTH:
        yield from items_by_shard(lake, stale(""), paths_of, inputs)
        return
    work_list = asked_shards.list_id(lake, [(filled, "")], stale(""))
    tables = sorted({filled, *OCCURRENCES, *reads})
    upto, marks = asked_shards.recorded(lake, work_list) or (-1, b"{}")
    before, n = count_rows(lake, tables, "lake", upto), 0
    is_grown = json.loads(marks) == {name: each.rows - each.new for name, each in before.items()}
    new = [name for name in (*OCCURRENCES, *reads) if before[name].new]
    since = _of_new_rows(new, upto) if is_grown and last_removal(lake) <= upto else ""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE changed_by_shard AS SELECT sha256, shard FROM image_content{since}")
    sizes = lake.query(f"SELECT shard, {HELD} * count(*) FROM changed_by_shard GROUP BY shard ORDER BY shard")
    mine = "SELECT sha256 FROM changed_by_shard WHERE shard IN (SELECT unnest(?::VARCHAR[]))"
    for run in rounds(sizes):
        lake.execute(f"CREATE OR REPLACE TEMP TABLE changed_pictures AS {mine}", (run,))
        for items in items_by_shard(lake, stale(AMONG), paths_of, inputs) if run else [[]]:
            n += sum(len(item.keys) for item in items)
            yield items
    lake.execute("DROP TABLE IF EXISTS changed_pictures; DROP TABLE changed_by_shard")
    after = count_rows(lake, tables, "lake", upto)
    added = {name: each.rows - before[name].rows for name, each in after.items()}
    if not lake.read_only and added == dict.fromkeys(tables, 0) | {filled: n} and (n or not is_grown or sizes):
        rows = json.dumps({name: each.rows for name, each in after.items()})
        newest = max(last_removal(lake), *(each.newest for each in after.values()))
        asked_shards.record(lake, work_list, newest, rows.encode())


def _of_new_rows(tables: Sequence[str], upto: int) -> str:
    """Return a WHERE clause on ``image_content``: pictures of rows of ``tables`` that were committed after ``upto``."""
    since = f'"commit" > {upto}'
    keys = ["SELECT NULL"]
    for table in tables:
        keys.append(
            f"SELECT sha256 FROM images WHERE document_id IN (SELECT document_id FROM {table} WHERE {since})"
            if table in OF_DOCUMENTS
            else f"SELECT sha256 FROM {table} WHERE {since}"
        )
    return f" WHERE sha256 IN ({' UNION ALL '.join(keys)})"


def count_rows(lake: Lake, tables: Sequence[str], catalog: str, upto: int) -> dict[str, RowCounts]:
    """Count the rows of each of ``tables``, and those of commits after ``upto``.

    DuckLake knows both, unless a file has rows of earlier and later commits: only such tables are read.
    """
    found = snapshot.rows_since(lake.unchecked, tables, upto, catalog)
    for table in [table for table, counts in found.items() if counts.new < 0]:
        counts = f'SELECT (SELECT count(*) FROM {table}), count(*) FROM {table} WHERE "commit" > {upto}'
        rows, new = lake.query(counts)[0]
        found[table] = RowCounts(rows, new, found[table].newest)
    return found
