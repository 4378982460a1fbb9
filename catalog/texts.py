"""Which sentences the kept images get: each image its best few, no sentence to more images than it may serve.

Equal to taking all pairs of an image and a sentence in order of similarity (ties: smaller image id, then smaller
content) while both have room, which is also the one stable matching of the two (Gale and Shapley 1962), because both
sides rank by the same similarity. Only images that may lose a sentence to others are told pair by pair: a sentence
that no more than ``max_uses`` images could want is free.
"""

import numpy as np
import pyarrow as pa

from catalog.lake import Lake
from catalog.plan import Plan, Stage
from catalog.worklist import surviving_sentences

_STEPS = (
    "cut_offers",
    "cut_some",
    "cut_again",
    "cut_contents",
    "cut_passed",
    "cut_sentences",
    "cut_choices",
    "cut_open",
    "cut_taken",
)
PAIRS_AT_ONCE = 1_000_000


def hand_out(lake: Lake, plan: Plan, upto: int | None) -> None:
    """Fill ``cut_texts`` for the images of ``cut_kept(n, image_id, sha256)``, whose pictures differ."""
    association = plan.recipe.association
    _offers(lake, plan, upto)
    _choices(lake, plan, upto)
    _open(lake, association.top_k, association.max_uses)
    taken = _taken(lake, association.top_k, association.max_uses)
    lake.connection.register("taken_pairs", taken)
    try:
        lake.execute("CREATE OR REPLACE TEMP TABLE cut_taken AS SELECT * FROM taken_pairs")
    finally:
        lake.connection.unregister("taken_pairs")
    free = f"SELECT n, s, similarity, place FROM cut_choices WHERE place <= {association.top_k} AND n NOT IN "
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_texts AS SELECT k.image_id, row_number() OVER (PARTITION BY t.n ORDER BY "
        f"t.place) AS place, s.content, t.similarity FROM ({free} (SELECT n FROM cut_open) UNION ALL "
        "SELECT n, s, similarity, place FROM cut_choices SEMI JOIN cut_taken USING (n, place)) t "
        "JOIN cut_kept k ON k.n = t.n JOIN cut_sentences s ON s.rowid = t.s"
    )
    for table in _STEPS:
        lake.execute(f"DROP TABLE {table}")


def matches(plan: Plan, upto: int | None = None) -> str:
    """SQL: the best 4 x top_k candidates of each picture over all cluster ranges and runs."""
    where = f"scorer = '{plan.scorer('matches')}'" + ("" if upto is None else f" AND commit <= {upto}")
    return _best(f"SELECT sha256, content, similarity FROM match_candidates WHERE {where}", "sha256", _keep(plan))


def _keep(plan: Plan) -> int:
    return 4 * plan.recipe.association.top_k


def _best(rows: str, key: str, keep: int) -> str:
    return (
        f"(SELECT {key}, content, max(similarity) AS similarity FROM ({rows}) GROUP BY {key}, content "
        f"QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY max(similarity) DESC, content) <= {keep})"
    )


def _offers(lake: Lake, plan: Plan, upto: int | None) -> None:
    """The ``matches`` of the kept images. One range of one run gives a picture no more than are kept: only
    pictures that met several are ranked here."""
    visible = "" if upto is None else f" AND commit <= {upto}"
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_offers AS SELECT k.n, m.content, m.similarity FROM match_candidates m "
        f"JOIN cut_kept k ON k.sha256 = m.sha256 WHERE m.scorer = '{plan.scorer('matches')}'{visible}"
    )
    best = _best("SELECT * FROM cut_offers SEMI JOIN cut_some USING (n)", "n", _keep(plan))
    _again(lake, "cut_offers", f"SELECT n FROM cut_offers GROUP BY n HAVING count(*) > {_keep(plan)}", best)


def _again(lake: Lake, table: str, some: str, rows: str) -> None:
    """Replace the rows of the images ``some``, which stand in ``cut_some`` meanwhile, by ``rows``."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_some AS {some}")
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_again AS FROM {rows}")
    lake.execute(f"DELETE FROM {table} WHERE n IN (SELECT n FROM cut_some)")
    lake.execute(f"INSERT INTO {table} SELECT * FROM cut_again")


def _choices(lake: Lake, plan: Plan, upto: int | None) -> None:
    """The offers of surviving sentences: image ``n``, sentence ``s``, ``place`` by similarity from 1.

    A sentence that an image was offered in several ranges or runs counts once.
    """
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_contents AS SELECT DISTINCT content FROM cut_offers")
    checks = [check for check in plan.sentence_checks if check.stage < Stage.CAPTION]
    cheap = [check for check in checks if "repeats" not in check.columns]
    dear = [check for check in checks if "repeats" in check.columns]  # counts occurrences: only of what passed so far
    first = surviving_sentences(plan, cheap, upto, "cut_contents")
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_passed AS {first}")
    last = surviving_sentences(plan, dear, upto, "cut_passed")
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_sentences AS {last}")
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_choices AS SELECT o.n, s.rowid AS s, o.similarity, "
        "row_number() OVER (PARTITION BY o.n ORDER BY o.similarity DESC, o.content) AS place "
        "FROM cut_offers o JOIN cut_sentences s ON s.content = o.content"
    )
    once = (
        "(SELECT n, s, max(similarity), row_number() OVER (PARTITION BY n ORDER BY min(place)) FROM cut_choices "
        "SEMI JOIN cut_some USING (n) GROUP BY n, s)"
    )
    _again(lake, "cut_choices", "SELECT DISTINCT n FROM cut_choices GROUP BY n, s HAVING count(*) > 1", once)


def _open(lake: Lake, top_k: int, max_uses: int) -> None:
    """Images among whose first choices is a sentence that too many could want."""
    wanted = f"SELECT s FROM cut_choices GROUP BY s HAVING count(*) > {max_uses}"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_open AS SELECT DISTINCT n FROM cut_choices WHERE place <= {top_k} "
        f"AND s IN ({wanted})"
    )


def _taken(lake: Lake, top_k: int, max_uses: int) -> pa.Table:
    """(n, place) of the pairs that the open images get."""
    sizes = "SELECT (SELECT count(*) FROM cut_open), (SELECT count(*) FROM cut_sentences)"
    images, sentences = lake.query(sizes)[0]
    wants, room = np.full(images, top_k, np.int32), np.full(sentences, max_uses, np.int32)
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_open AS SELECT k.n, row_number() OVER (ORDER BY k.image_id) - 1 AS place "
        "FROM cut_open o JOIN cut_kept k ON k.n = o.n"
    )
    ordered = (
        "SELECT o.place AS image, c.s, c.n, c.place FROM cut_choices c JOIN cut_open o ON o.n = c.n "
        "ORDER BY c.similarity DESC, o.place, c.place"
    )
    found = []
    for batch in lake.blocks(ordered, rows=PAIRS_AT_ONCE):
        image, s = batch["image"].to_numpy(), batch["s"].to_numpy()
        hits = _greedy(image, s, wants, room)
        found.append(batch.select(["n", "place"]).take(pa.array(hits, pa.int64())))
    empty = pa.schema([("n", pa.int64()), ("place", pa.int64())])
    return pa.Table.from_batches(found, None if found else empty)


def _greedy(image: np.ndarray, s: np.ndarray, wants: np.ndarray, room: np.ndarray) -> list[int]:
    """Rows taken in order while both sides have room, which is counted down."""
    hits = []
    live = np.flatnonzero((wants[image] > 0) & (room[s] > 0))
    for at, i, j in zip(live.tolist(), image[live].tolist(), s[live].tolist(), strict=True):
        if wants[i] and room[j]:
            wants[i] -= 1
            room[j] -= 1
            hits.append(at)
    return hits
