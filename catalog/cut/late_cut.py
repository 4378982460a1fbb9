"""End a cut: apply the rules on generated texts, cap the clusters, and select the images whose texts are needed next.

A cluster keeps at most so many images, those with the smallest sha256(sha256 || seed). An image counts as passing while
it is unknown whether it passes the rules on generated texts. The unknown images within the cap get their texts
generated in waves; some then fail, others move up, and the next wave selects these, until none within the cap is
unknown. The kept images and all decisions then equal those of generating every text: all images up to the last kept one
of each cluster are known, and the rest is dropped by `balance` either way.

To need few waves, a wave selects more: enough to fill each cluster at the pass rate so far, and from the third wave on
an excess of 1, 3, 7, ... images per missing image. By simulation, 4 or 5 waves then generate 1 to 5 % more texts than
needed, where generating none too many would take up to 113 waves (infra/SCALE.md).
"""

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut.facts import EXTENDED
from pairmill.catalog.cut.kept_texts import KeptTexts, pictures_of
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.generated import generated, late_checks, states, with_first_text
from pairmill.catalog.recipe.plan import Plan

BEFORE = "ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING"
# Weight of the pass rate over all clusters, as a number of pseudo-images added to the cluster's own known images.
PRIOR = 10
# Rates are integers in thousandths, so that a sum is the same in any order.
WHOLE = 1000
# Texts to join at once: the joins hold some 600 bytes an image, in hash tables that cannot be spilled.
TEXTS_AT_ONCE = 1_000_000
# Lower bound of a rate, so that a wave selects tens of images per missing image at most. A rule that drops nearly all
# images is likely a mistake: `waves` shows it before every image is processed.
LEAST = 100


def balance(lake: Lake, plan: Plan) -> None:
    """Rank the images of each cluster into ``cut_capped``, and mark images past the recipe's cap.

    Creates the view ``cut_capped(n, cluster, place, size, past, state, value)`` from ``cut_survivors`` and
    ``cut_late``. ``place`` is the rank by ``draw``, from 1, among the ``size`` images of the cluster, regardless of the
    rules on generated texts, so it does not depend on the number of generated texts. ``past``: the cluster was full
    before this image; always false without a cluster. Creates the table ``cut_kept(n, picture)``: the images within
    the cap that no rule drops.

    Sorted in memory, 45 bytes per image: two thirds of DuckDB's time for windows.
    """
    found = lake.table(
        "SELECT n, picture, CAST(coalesce(cluster + 1, 0) AS UBIGINT) AS cluster, draw, "
        f"{_is_kept(plan)} AS spared FROM cut_survivors"
    )
    n, picture, cluster, draw, spared = (found[name].to_numpy() for name in found.column_names)
    passes = np.ones(n.max(initial=0) + 1, bool)
    passes[lake.table("SELECT n FROM cut_late WHERE state <> ''")["n"].to_numpy()] = False
    passes = passes[n]
    order, cluster = _by_cluster_and_draw(cluster, draw)
    starts = np.flatnonzero(np.diff(cluster, prepend=-1)).astype(np.uint32)
    sizes = np.diff(starts, append=np.uint32(len(n)))
    passed = np.cumsum(passes[order], dtype=np.uint32) - passes[order]
    past, cap = cluster > 0, plan.recipe.balance.cap
    past &= False if cap is None else passed - np.repeat(passed[starts], sizes) >= cap
    place = np.arange(1, len(n) + 1, dtype=np.uint32) - np.repeat(starts, sizes)
    past &= ~spared[order]
    ranks = {"n": n[order], "cluster": pa.array(cluster - 1, mask=cluster == 0), "place": place,
             "size": np.repeat(sizes, sizes), "past": past}  # fmt: skip
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_ranks "
                 "(n UINTEGER, cluster INTEGER, place UINTEGER, size UINTEGER, past BOOLEAN); "
                 "CREATE OR REPLACE TEMP TABLE cut_kept (n UINTEGER, picture UINTEGER)")  # fmt: skip
    lake.insert("cut_ranks", pa.table(ranks))
    kept = order[passes[order] & ~past]
    lake.insert("cut_kept", pa.table({"n": n[kept], "picture": picture[kept]}))
    late = " LEFT JOIN cut_late USING (n)" if with_first_text(plan) else ""
    capped = f"SELECT * FROM cut_ranks{late}" if late else "SELECT *, '' AS state, '' AS value FROM cut_ranks"
    lake.execute(f"CREATE OR REPLACE TEMP VIEW cut_capped AS {capped}")


def _by_cluster_and_draw(cluster: np.ndarray, draw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows in the order of (cluster, draw), both uint64, and the sorted clusters, int32.

    One 64-bit key sorts in a quarter of the time of two; if its bits do not tell all rows apart, both are sorted.
    """
    bits = max(1, int(cluster.max(initial=0)).bit_length())
    key = cluster << np.uint64(64 - bits) | draw >> np.uint64(bits)
    order = np.argsort(key)
    key.sort()
    if (key[1:] == key[:-1]).any():
        order = np.lexsort((draw, cluster))
    return order, (key >> np.uint64(64 - bits)).astype(np.int32)


def _is_kept(plan: Plan) -> str:
    """Return the SQL condition that people keep image ``n``: the plan spares it."""
    return f"n IN (SELECT rowid FROM facts.images WHERE {plan.spares})" if plan.spares else "false"


def judge(lake: Lake, plan: Plan) -> None:
    """Create ``cut_late(n, state, value)``: the rules on generated texts, for the images of ``cut_survivors(n)``.

    ``state`` is '' for a passing image, or the rule that drops it. NULL, or no row, means that a text is not generated
    yet. The table is empty for a recipe that generates no text.
    """
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_late (n UINTEGER, state VARCHAR, value VARCHAR)")
    if not (begun := with_first_text(plan)):
        return
    rows, kept = generated(
        plan,
        "(SELECT b.n, b.best, b.sentence, f.* FROM cut_begun b JOIN facts.images f ON f.rowid = b.n)",
        "sha256 IN (SELECT sha256 FROM cut_begun)",
    )
    texts = KeptTexts(lake, rows, kept, begun) if lake.largest >= EXTENDED else None
    is_kept = texts is not None and texts.read()
    with_text = "cut_with_text" if texts else pictures_of(f"SELECT sha256 FROM {begun}")
    unknown = f"(FROM {with_text} ANTI JOIN cut_known USING (picture))" if is_kept else with_text
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_waiting AS SELECT n, best, sha256 FROM "
        f"(SELECT n, best FROM cut_survivors SEMI JOIN {unknown} USING (picture)) JOIN facts.images f ON f.rowid = n"
    )
    n = lake.query("SELECT count(*) FROM cut_waiting")[0][0]
    if n or not is_kept:  # the joins cost 0.6 CPU s at 236,000 texts even for no image
        lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_sentences AS {fusion_sentences(plan, 'cut_waiting')}")
        parts = 1 + n // TEXTS_AT_ONCE
        for part in range(parts):
            lake.execute(
                "CREATE OR REPLACE TEMP TABLE cut_begun AS SELECT w.*, coalesce(t.text, '') AS sentence FROM "
                f"cut_waiting w LEFT JOIN cut_sentences t USING (n) WHERE w.n % {parts} = {part}"
            )
            into = "INSERT INTO cut_known" if is_kept or part else "CREATE OR REPLACE TEMP TABLE cut_known AS"
            lake.execute(f"{into} SELECT n, {', '.join(['picture', 'best', *kept])} FROM ({rows})")
    if n and texts:
        texts.keep()
    reads_facts = plan.spares or {name for check in late_checks(plan) for name in check.columns} - {*kept}
    facts = " k JOIN facts.images f ON f.rowid = k.n" if reads_facts else ""
    lake.execute(f"INSERT INTO cut_late BY NAME {states(plan, f'FROM cut_known{facts}')}")
    made = ("cut_waiting", "cut_with_text", "cut_sentences", "cut_begun", "cut_known")
    lake.execute("; ".join(f"DROP TABLE IF EXISTS {table}" for table in made))


def fusion_sentences(plan: Plan, among: str) -> str:
    """Return SQL for (n, text): for each image of table ``among(n)`` its best candidate that passes the rules.

    No rows for an image without one, nor if the recipe does not fuse: the query would read all texts of a lake.
    """
    if not plan.recipe.fuse:
        return "SELECT CAST(NULL AS UINTEGER) AS n, '' AS text WHERE false"
    return (
        f"SELECT b.n, c.text FROM cut_survivors b SEMI JOIN {among} a ON a.n = b.n "
        "JOIN facts.contents k ON k.rowid = b.best JOIN sentence_content c ON facts.key_of(c.content) = k.key"
    )


@dataclass(frozen=True)
class WaveOutcome:
    """Counts of one wave's images: ``asked`` counts all of them, the other fields some of these.

    ``known``: all their generated texts exist. ``passed``: they pass the rules on generated texts. ``kept``: the cut
    keeps them.
    """

    asked: int
    known: int
    passed: int
    kept: int


def count_unknown(lake: Lake) -> int:
    """Count the images within the cap of the last cut whose generated texts are unknown."""
    return lake.query("SELECT count(*) FROM cut_capped WHERE state IS NULL AND NOT past")[0][0]


def count_requested(lake: Lake) -> int:
    """Count the images of the current wave, the rows of the temporary table ``wave_asked``."""
    return lake.query("SELECT count(*) FROM wave_asked")[0][0]


def read_outcome(lake: Lake) -> WaveOutcome:
    """Count what the last cut decided about the images of the current wave, ``wave_asked``."""
    counts = "count(*), count(state), count(*) FILTER (state = ''), count(*) FILTER (state = '' AND NOT past)"
    return WaveOutcome(*lake.query(f"SELECT {counts} FROM wave_asked LEFT JOIN cut_capped USING (n)")[0])


def select_wave(lake: Lake, plan: Plan, wave: int, most: int = 0) -> int:
    """Select the images of wave ``wave`` (from 1) into ``wave_asked(n, sha256, sentence)``; return their number.

    They are unknown images of the last cut. ``most`` > 0 takes the first by sha256, a sample of all shards, since one
    shard may be one site. ``sentence`` is the text for fusion, '' without one.
    """
    wanted = in_reach(lake, plan, wave)
    if most:
        wanted = f"SELECT n FROM ({wanted}) w JOIN facts.images i ON i.rowid = w.n ORDER BY i.sha256 LIMIT {most}"
    lake.execute(f"CREATE OR REPLACE TEMP TABLE wave_wanted AS {wanted}")
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE wave_asked AS SELECT w.n, i.sha256, coalesce(t.text, '') AS sentence "
        "FROM wave_wanted w JOIN facts.images i ON i.rowid = w.n "
        f"LEFT JOIN ({fusion_sentences(plan, 'wave_wanted')}) t ON t.n = w.n"
    )
    lake.execute("DROP TABLE wave_wanted")
    return count_requested(lake)


def in_reach(lake: Lake, plan: Plan, wave: int) -> str:
    """Return SQL for column ``n``: the unknown images, in hash order, that are expected to fill their clusters.

    Without a cap these are all unknown images.
    """
    cap = plan.recipe.balance.cap
    if cap is None:
        return "SELECT n FROM cut_capped WHERE state IS NULL"
    excess = 2 ** max(0, wave - 2) - 1
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE wave_rates AS WITH known AS (SELECT cluster, "
        "count(*) FILTER (state = '') AS passed, count(state) AS known, "
        "count(*) FILTER (state IS NULL AND NOT past) AS lacking FROM cut_capped WHERE cluster IS NOT NULL "
        "GROUP BY cluster), "
        "every AS (SELECT coalesce(sum(passed) / nullif(sum(known), 0), 1) AS rate FROM known) "
        "SELECT cluster, lacking, "
        f"greatest({LEAST}, CAST(ceil({WHOLE} * (passed + {PRIOR} * rate) / (known + {PRIOR})) AS BIGINT)) AS rate "
        "FROM known, every"
    )
    weight = f"CASE WHEN state IS NULL THEN rate WHEN state = '' THEN {WHOLE} ELSE 0 END"
    rows = (
        f"(SELECT n, cluster, place, state, lacking, {weight} AS weight FROM cut_capped "
        "LEFT JOIN wave_rates USING (cluster))"
    )
    enough = f"{cap * WHOLE} + {excess * WHOLE} * lacking"
    return (
        "SELECT n FROM (SELECT n, cluster, state, lacking, sum(weight) OVER (PARTITION BY cluster ORDER BY place "
        f"{BEFORE}) AS expected FROM {rows}) "
        f"WHERE state IS NULL AND (cluster IS NULL OR coalesce(expected, 0) < {enough} OR {_is_kept(plan)})"
    )
