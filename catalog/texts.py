"""Which sentences the kept images get: each image its best few, no sentence to more images than it may serve.

Equal to taking all pairs of an image and a sentence in order of similarity (ties: smaller image id, then smaller
content) while both have room, which is also the one stable matching of the two (Gale and Shapley 1962), because both
sides rank by the same similarity. Only images that may lose a sentence to others are told pair by pair: a sentence
that no more than ``max_uses`` images could want is free.
"""

import numpy as np
import pyarrow as pa

from catalog.facts import best_candidates
from catalog.lake import Lake
from catalog.plan import Plan
from catalog.worklist import passed

_STEPS = ("cut_offers", "cut_choices", "cut_open", "cut_wanted", "cut_taken")
PAIRS_AT_ONCE = 1_000_000


def hand_out(lake: Lake, plan: Plan) -> None:
    """Make ``cut_texts`` for the images of ``cut_kept(n, picture)``, whose pictures differ."""
    association = plan.recipe.association
    _choices(lake, plan)
    _open(lake, association.top_k, association.max_uses)
    taken = _taken(lake, association.top_k, association.max_uses)
    lake.connection.register("taken_pairs", taken)
    try:
        lake.execute("CREATE OR REPLACE TEMP TABLE cut_taken AS SELECT * FROM taken_pairs")
    finally:
        lake.connection.unregister("taken_pairs")
    free = f"SELECT n, s, similarity, place FROM cut_choices WHERE place <= {association.top_k} AND n NOT IN "
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_given AS SELECT n, row_number() OVER (PARTITION BY n ORDER BY place) AS "
        f"place, s, similarity FROM ({free} (SELECT n FROM cut_open) UNION ALL "
        "SELECT n, s, similarity, place FROM cut_choices SEMI JOIN cut_taken USING (n, place))"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP VIEW cut_texts AS SELECT i.image_id, g.place, s.content, g.similarity FROM cut_given g "
        "JOIN facts.images i ON i.n = g.n JOIN facts.sentences s ON s.sentence = g.s"
    )
    for table in _STEPS:
        lake.execute(f"DROP TABLE {table}")


def matches(plan: Plan, upto: int | None = None) -> str:
    """SQL: the best 4 x top_k candidates of each picture over all cluster ranges and runs."""
    where = f"scorer = '{plan.scorer('matches')}'" + ("" if upto is None else f" AND commit <= {upto}")
    return (
        f"(SELECT sha256, content, max(similarity) AS similarity FROM match_candidates WHERE {where} "
        "GROUP BY sha256, content QUALIFY row_number() OVER "
        f"(PARTITION BY sha256 ORDER BY max(similarity) DESC, content) <= {best_candidates(plan)})"
    )


def _choices(lake: Lake, plan: Plan) -> None:
    """The matches of surviving sentences: image ``n``, sentence ``s``, ``place`` by similarity from 1."""
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_offers AS SELECT n, sentence, similarity FROM facts.matches "
        "JOIN cut_kept USING (picture)"
    )
    # Those that fail are fewer than those that pass: half the time of a join with the others.
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_choices AS SELECT n, sentence AS s, similarity, "
        "row_number() OVER (PARTITION BY n ORDER BY similarity DESC, sentence) AS place FROM cut_offers "
        f"ANTI JOIN (SELECT sentence FROM facts.sentences WHERE silenced OR "
        f"({passed(plan.sentence_checks)}) IS NOT TRUE) USING (sentence)"
    )


def _open(lake: Lake, top_k: int, max_uses: int) -> None:
    """Images among whose first choices is a sentence that too many could want."""
    wanted = f"SELECT s FROM cut_choices GROUP BY s HAVING count(*) > {max_uses}"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_open AS SELECT DISTINCT n FROM cut_choices WHERE place <= {top_k} "
        f"AND s IN ({wanted})"
    )


def _taken(lake: Lake, top_k: int, max_uses: int) -> pa.Table:
    """(n, place) of the pairs that the open images get."""
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_open AS SELECT o.n, row_number() OVER (ORDER BY i.image_id) - 1 AS image "
        "FROM cut_open o JOIN facts.images i ON i.n = o.n"
    )
    wanted = "SELECT DISTINCT s FROM cut_choices SEMI JOIN cut_open USING (n)"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_wanted AS {wanted}")
    images, sentences = lake.query("SELECT (SELECT count(*) FROM cut_open), (SELECT count(*) FROM cut_wanted)")[0]
    wants, room = np.full(images, top_k, np.int32), np.full(sentences, max_uses, np.int32)
    ordered = (
        "SELECT o.image, w.rowid AS sentence, c.n, c.place FROM cut_choices c JOIN cut_open o USING (n) "
        "JOIN cut_wanted w USING (s) ORDER BY c.similarity DESC, o.image, c.place"
    )
    found = []
    for batch in lake.blocks(ordered, rows=PAIRS_AT_ONCE):
        image, sentence = batch["image"].to_numpy(), batch["sentence"].to_numpy()
        hits = _greedy(image, sentence, wants, room)
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
