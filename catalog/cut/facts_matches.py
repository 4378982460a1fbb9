"""Write ``matches``, the table of facts with the best candidate sentences of each picture.

DuckDB joins and sorts the candidates, and spills to disk; numpy cuts the sorted rows into a list for each picture.
"""

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import best_candidates, current_scores
from pairmill.catalog.recipe.plan import Plan

# 32 bits count to 4.29 billion; with more sentences the conversion fails with an error. 64 bits take twice the memory
# in every join. The number is the rowid rather than row_number(), which reads all rows with a single thread.
NUMBER = "CAST(rowid AS UINTEGER)"
SENTENCE_NUMBERS = f"(SELECT key, {NUMBER} AS sentence FROM making.contents)"
SORTED_AT_ONCE = 8_000_000


def write_matches(lake: Lake, plan: Plan, of_picture: str, of_sentence: str, among: str = "", since: str = "") -> None:
    """Write ``making.matches``: the best candidate sentences of each picture, one row per picture.

    With a table ``among`` of keys, add these pictures. Then numbers are in no order, and ties break by ``content``.
    With a condition ``since``, only rows that pass it are read, ``new_numbers`` has their sentences, and
    ``matches_before(picture, before)`` the other candidates.

    Repeated (picture, sentence) pairs, of which there should be none, are merged first, and so are sentences of one
    group. The steps are separate statements: joined and sorted by one statement, which needs memory for every part, 10M
    images did not fit into 2.6 GB.
    """
    names, numbers = [name for name, _ in plan.candidate_columns], "new_numbers" if since else SENTENCE_NUMBERS
    further = "".join(f", {name}" for name in names)
    tie, content = ("content", ", content") if among else ("sentence", "")
    only = since or (among and f"{of_picture} IN (SELECT key FROM {among})")
    joins = "".join(
        f" LEFT JOIN (SELECT {of_picture} AS p, {of_sentence} AS s, {table.source[name]} AS {name} "
        f"FROM {current_scores(plan, table.table, 'sha256', only=only)}) USING (p, s)"
        for name, table in plan.candidate_columns
    )
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE facts_candidates AS SELECT picture, sentence, similarity{content}{further} FROM "
        f"(SELECT {of_picture} AS p, {of_sentence} AS s, similarity{content} FROM match_candidates "
        f"WHERE scorer = '{plan.scorer('matches')}' AND {only or 'true'}) "
        "JOIN (SELECT key AS p, picture FROM facts_pictures) USING (p) "
        f"JOIN (SELECT key AS s, sentence FROM {numbers}) USING (s){joins}"
    )
    if since and lake.query("SELECT 1 FROM matches_before LIMIT 1"):
        lake.execute(
            "INSERT INTO facts_candidates SELECT picture, sentence, similarity, content FROM (SELECT picture, "
            "unnest(before.sentences) AS sentence, unnest(before.similarities) AS similarity "
            "FROM matches_before SEMI JOIN facts_pictures USING (picture)) "
            f"JOIN {SENTENCE_NUMBERS} USING (sentence) "
            f"JOIN (SELECT {of_sentence} AS key, content FROM sentence_content) USING (key)"
        )
    others = f"{content}{further}"
    once = f"(SELECT picture, sentence, max(similarity) AS similarity{others} FROM facts_candidates GROUP BY ALL)"
    grouped = lake.query("SELECT 1 FROM facts_duplicates LIMIT 1")
    if grouped:
        nearest = f"OVER (PARTITION BY picture, coalesce(duplicates, sentence) ORDER BY similarity DESC, {tie})"
        once = (
            f"(SELECT picture, sentence, similarity{others} FROM {once} LEFT JOIN facts_duplicates USING (sentence) "
            f"QUALIFY row_number() {nearest} = 1)"
        )
    if not among:
        lists = "".join(f", list({name}) AS {name}" for name in names)
        lake.execute(
            "CREATE TABLE making.matches AS SELECT picture, list(sentence) AS sentences, "
            f"list(similarity) AS similarities{lists} FROM facts_candidates WHERE false GROUP BY picture"
        )
    if grouped or among or not _write_matches(lake, "facts_candidates", best_candidates(plan), names, tie):
        _write_matches(lake, once, best_candidates(plan), names, tie)
    lake.execute("DROP TABLE facts_candidates")


def _write_matches(lake: Lake, rows: str, most: int, scores: Sequence[str], tie: str) -> bool:
    """Write the best candidates of each picture into ``making.matches``, a row a picture.

    ``rows`` is a table (picture, sentence, similarity, *scores). Returns False, and leaves ``making.matches`` empty, if
    it has a pair twice: the caller then passes distinct pairs, which take a sort.
    """
    ordered = lake.blocks(f"FROM {rows} ORDER BY picture, similarity DESC, {tie}", rows=SORTED_AT_ONCE)
    with lake.connection.cursor() as writer:  # the lake's own connection is streaming the rows
        for found in _of_whole_pictures(ordered):
            if not all_different(found["picture"].to_numpy().astype(np.uint64) << 32 | found["sentence"].to_numpy()):
                writer.execute("DELETE FROM making.matches")
                return False
            writer.register("lists", _lists(found, most, scores))
            writer.execute("INSERT INTO making.matches FROM lists")
    return True


def _of_whole_pictures(blocks: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Regroup batches of rows sorted by picture so that no picture is split between two tables."""
    rest = []
    for block in blocks:
        picture = block["picture"].to_numpy()
        last = np.searchsorted(picture, picture[-1:]).sum()
        if last:
            yield pa.Table.from_batches([*rest, block.slice(0, last)])
            rest = []
        rest.append(block.slice(last))
    if rest:
        yield pa.Table.from_batches(rest)


def _lists(found: pa.Table, most: int, scores: Sequence[str]) -> pa.Table:
    """Collect the first ``most`` rows of each picture into one row of lists."""
    picture = found["picture"].to_numpy()
    starts = np.flatnonzero(np.diff(picture, prepend=picture[:1] + 1))
    counts = np.diff(starts, append=len(picture))
    best = np.arange(len(picture)) - np.repeat(starts, counts) < most
    offsets = np.concatenate(([0], np.cumsum(np.minimum(counts, most)))).astype(np.int32)
    lists = {"sentences": "sentence", "similarities": "similarity", **{name: name for name in scores}}
    chosen = found.filter(pa.array(best)).combine_chunks()
    columns = {
        name: pa.ListArray.from_arrays(offsets, chosen[column].combine_chunks()) for name, column in lists.items()
    }
    return pa.table({"picture": picture[starts], **columns})


def all_different(keys: np.ndarray) -> bool:
    """Return whether all 64-bit numbers differ. numpy sorts 36M in 2 s; DuckDB's GROUP BY takes 12."""
    ordered = np.sort(keys)
    return not (ordered[1:] == ordered[:-1]).any()
