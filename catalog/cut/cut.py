"""Apply a recipe to all images (the cut): decide whether each image is kept, or what drops it.

The order is fixed: early rules, pictures that people leave out (`catalog.cut.edits`), exact duplicates, the best
surviving member of each duplicate group, a sentence that passes the rules, the rules on generated texts, the cap of
each cluster, texts. After the cap, only a prefix of each cluster's order matters, so the other images need no generated
texts (`catalog.cut.late_cut`). Only this order gives the same dataset as full generation. Images past a full cluster
are dropped by ``balance``, whatever is known of them.

The result is in temporary views of this connection:

- ``cut_fates(n, dropped_by)``: all images by number, for counts;
- ``cut_images(n, image_id, sha256, dropped_by, dropped_value, cluster, failed)``: all images. ``cluster`` is set for
  those that reached the cap. Their ``dropped_value`` is the rank that decided (``cluster=7 place=40 of 312``), for kept
  images too, so that explaining one image needs no ranking of a whole cluster. ``failed`` has a bit for each early rule
  that is false, bit 0 for the first rule;
- ``cut_texts(image_id, place, content, text, similarity)``: the sentences of the kept images, ``place`` from 1.

The cut reads the numbered facts of :mod:`catalog.cut.facts_tables`, where ``n`` is an image's row number. Each step
lists the numbers that it drops; no row is rewritten, and readers of the views look up the ids. Joins and windows spill
to disk.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut import facts, texts
from pairmill.catalog.cut.edits import KEPT, LEFT_OUT, read_left_out
from pairmill.catalog.cut.facts_tables import image_checks
from pairmill.catalog.cut.kept_file import KeptFile
from pairmill.catalog.cut.late_cut import balance, judge
from pairmill.catalog.cut.texts import (
    NOBODY,
    assign_texts,
    assigned_texts,
    best_sentences,
    candidates,
    group_keepers,
    surviving,
)
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import decided, failed, passed
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import Damaged

IMAGES_AT_ONCE = 2_000_000
# The temporary tables of the steps before the rules on generated texts; the last one has the questions they answer.
EARLY = ("cut_keepers", "cut_best", "cut_dropped", "cut_survivors", "cut_asked")
# What makes these tables: a file of them is not read by other code.
_CODE = "".join(Path(module).read_text() for module in (__file__, texts.__file__))


def cut(lake: Lake, plan: Plan) -> None:
    """Decide for every image whether the recipe keeps it, into the temporary views that the module's docstring lists.

    Steps before the rules on generated texts are kept from the last cut if it asked the same: another cap costs 11 CPU
    s at 10M images instead of 37, another rule on images 17, the first cut of a process 19. Damaged facts are rebuilt.
    Raises Damaged if files of the lake are damaged.
    """
    _retry_with_rebuilt_facts(_cut, lake, plan)


def select_survivors(lake: Lake, plan: Plan) -> None:
    """Create ``cut_survivors(n, picture, cluster, draw, best)``: the images that reach the rules on generated texts.

    ``best`` is the number of the sentence that an image gets if other images use none. Damaged facts are rebuilt:
    DuckDB verifies each of their blocks. Raises Damaged for files of the lake.
    """
    _retry_with_rebuilt_facts(_survivors, lake, plan)


def _retry_with_rebuilt_facts(step: Callable[[Lake, Plan], None], lake: Lake, plan: Plan) -> None:
    """Run a step over the facts; if the facts are damaged, discard them and run the step once more."""
    try:
        step(lake, plan)
    except Damaged:
        if not facts.discard(lake):
            raise
        step(lake, plan)


def _survivors(lake: Lake, plan: Plan) -> None:
    """Create the temporary tables ``cut_survivors``, ``cut_dropped``, ``cut_keepers`` and ``cut_best``.

    ``cut_keepers(sentence)`` has the result of `group_keepers`, a row per sentence; ``cut_best(sentence)`` that of
    `best_sentences`, a row per picture. Both stay from the connection's last cut if what they depend on is the same, as
    after a changed rule on images. All four stay after a changed cap or a changed rule on generated texts. In a lake of
    EXTENDED rows the first cut of a process reads them from a file: 264 MB at 10M images.
    """
    facts_file = facts.attach(lake, plan)
    read_left_out(lake, plan.recipe.name)
    with lake.without_tables():
        keep = passed(image_checks(plan))
        of_sentences, of_images = _questions(lake, plan, str(facts_file), keep)
        file = None
        if lake.largest >= facts.EXTENDED:
            file = KeptFile(lake, "early", of_sentences + _CODE, files=1 + facts.FORMER)
        answered = _answered(lake)
        is_known = of_sentences in answered
        if file and not is_known and file.read(lambda: _read_early(lake)):
            is_known, answered = True, _answered(lake)
        if of_images in answered:
            return
        lake.execute("DELETE FROM cut_asked")
        if not is_known:
            lake.execute(
                "CREATE OR REPLACE TEMP TABLE cut_keepers (sentence UINTEGER); "
                "CREATE OR REPLACE TEMP TABLE cut_best (sentence UINTEGER)"
            )
            keepers = group_keepers(lake, plan)
            lake.insert("cut_keepers", pa.table({"sentence": keepers}))
            lake.insert("cut_best", pa.table({"sentence": best_sentences(lake, plan, keepers)}))
        lake.execute(
            f"INSERT INTO cut_asked VALUES ({quoted(of_sentences)}); "
            "CREATE OR REPLACE TEMP TABLE cut_dropped (n UINTEGER, rule VARCHAR, better UINTEGER); "
            f"INSERT INTO cut_dropped BY NAME SELECT rowid AS n, '{LEFT_OUT}' AS rule FROM facts.images "
            f"WHERE sha256 IN (SELECT sha256 FROM temp.acts_left_out) AND {keep}"
        )
        _drop_copies(lake, plan, keep)
        _drop_textless(lake, plan, keep)
        lake.execute("INSERT INTO cut_asked VALUES (?)", (of_images,))
        if file and not is_known:
            file.write({table: f"FROM temp.{table}" for table in EARLY}, facts_file.exists)


def _answered(lake: Lake) -> set[str]:
    """Return the strings of `_questions` to which this connection's temporary tables are the answer."""
    asked = "CREATE TEMP TABLE IF NOT EXISTS cut_asked (question VARCHAR); FROM cut_asked"
    return {question for (question,) in lake.query(asked)}


def _read_early(lake: Lake) -> bool:
    """Read the tables EARLY from the attached file ``kept``; return True."""
    read = "; ".join(f"CREATE OR REPLACE TEMP TABLE {table} AS FROM kept.{table}" for table in EARLY)
    lake.execute(f"DELETE FROM cut_asked; {read}")
    return True


def _questions(lake: Lake, plan: Plan, facts_file: str, keep: str) -> tuple[str, str]:
    """Return two strings: what ``cut_keepers`` and ``cut_best`` depend on, and what ``cut_survivors`` depends on.

    Equal strings mean equal tables. The pictures that people leave out or keep are in them by number and hash.
    """
    of_sentences = repr((facts_file, surviving(plan), candidates(plan), plan.recipe.association.at_least))
    acts = ["acts_left_out", *["acts_kept"] * bool(plan.spares)]
    given = " UNION ALL ".join(f"SELECT '{table}', count(*), bit_xor(hash(sha256)) FROM temp.{table}" for table in acts)
    return of_sentences, repr((of_sentences, lake.query(given), keep, plan.spares))


def _read(lake: Lake, table: str) -> np.ndarray:
    """Read the column ``sentence`` of ``cut_keepers`` or ``cut_best``, (n,) uint32. DuckDB may spill the table."""
    return lake.table(f"FROM {table}")["sentence"].to_numpy()


def _cut(lake: Lake, plan: Plan) -> None:
    """Run all steps of the cut in order."""
    _survivors(lake, plan)
    judge(lake, plan)
    with lake.without_tables():
        balance(lake, plan)
        assign_texts(lake, plan, _read(lake, "cut_keepers"))
        _decisions(lake, plan)
    lake.execute(f"CREATE OR REPLACE TEMP VIEW cut_texts AS {assigned_texts()}")


def _drop_copies(lake: Lake, plan: Plan, keep: str) -> None:
    """Keep one occurrence of each repeated image, and then the best of each duplicate group.

    Occurrences are chosen by their content in the document; the image id, which depends on the location, only breaks
    ties. The best of a group is one that people keep, else has most pixels, most bytes, the smallest sha256.
    """
    alive = f"SELECT *, rowid AS n FROM facts.images WHERE {keep} AND rowid NOT IN (SELECT n FROM cut_dropped)"
    _keep_first(lake, "exact_duplicate", f"{alive} AND repeated", "picture", "occurrence, image_id")
    kept = f"(sha256 IN (SELECT sha256 FROM {KEPT})) DESC, " if plan.spares else ""
    best = f"{kept}CAST(width AS BIGINT) * height DESC, n_bytes DESC, sha256"
    _keep_first(lake, "duplicate", f"{alive} AND group_id IS NOT NULL", "group_id", best)


def _keep_first(lake: Lake, rule: str, rows: str, group: str, order: str) -> None:
    """Keep the first row of each ``group`` in ``order``; drop the others by ``rule``."""
    window = f"OVER (PARTITION BY {group} ORDER BY {order})"
    lake.execute(
        f"INSERT INTO cut_dropped SELECT n, '{rule}', first_value(n) {window} FROM ({rows}) "
        f"QUALIFY row_number() {window} > 1"
    )


def _drop_textless(lake: Lake, plan: Plan, keep: str) -> None:
    """Write the images that no rule has dropped so far into ``cut_survivors``.

    If the recipe demands a sentence, images without one go into ``cut_dropped`` instead, by the rule ``no_text``.
    """
    best = _read(lake, "cut_best")
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_survivors "
        "(n UINTEGER, picture UINTEGER, cluster INTEGER, draw UBIGINT, best UINTEGER)"
    )
    images = lake.query("SELECT coalesce(max(rowid), -1) + 1 FROM facts.images")[0][0]
    is_dropped = np.zeros(images, bool)  # DuckDB's join of each batch with them took as long as all other steps here
    is_dropped[lake.table("SELECT n FROM cut_dropped")["n"].to_numpy()] = True
    for start in range(0, images, IMAGES_AT_ONCE):
        found = lake.table(
            "SELECT CAST(rowid AS UINTEGER) AS n, picture, cluster, draw FROM facts.images WHERE "
            f"rowid BETWEEN {start} AND {start + IMAGES_AT_ONCE - 1} AND {keep}"
        )
        found = found.filter(pa.array(~is_dropped[found["n"].to_numpy()]))
        sentence = best[found["picture"].to_numpy()]
        has_text = (sentence != NOBODY) | (plan.recipe.association.at_least == 0)
        lake.insert("cut_survivors", found.append_column("best", pa.array(sentence)).filter(pa.array(has_text)))
        textless = found.filter(pa.array(~has_text)).select(["n"])
        if textless.num_rows:
            lake.insert("cut_dropped", textless.append_column("rule", pa.array(["no_text"] * textless.num_rows)))


def _decisions(lake: Lake, plan: Plan) -> None:
    """Create the views ``cut_fates`` and ``cut_images`` over the results of all steps.

    Ids, values and reasons are resolved on reading; ``cut_fates`` resolves none, and counts in a quarter of the time.
    """
    checks = image_checks(plan)
    by_rules = (
        f"(SELECT rowid AS n, image_id, sha256, {decided(checks)}, {failed(checks)} AS failed FROM facts.images "
        f"WHERE ({passed(checks)}) IS NOT TRUE)"
    )
    fate = (
        "CASE WHEN past THEN 'balance' WHEN coalesce(state, '') <> '' THEN state "
        "WHEN t.n IS NOT NULL THEN 'max_uses' ELSE '' END"
    )
    with_fate = "cut_capped c LEFT JOIN cut_textless t ON t.n = c.n"
    lake.execute(
        f"CREATE OR REPLACE TEMP VIEW cut_fates AS SELECT n, dropped_by FROM {by_rules} "
        f"UNION ALL SELECT n, rule FROM cut_dropped UNION ALL SELECT c.n, {fate} FROM {with_fate}"
    )
    place = "'cluster=' || c.cluster || ' place=' || c.place || ' of ' || c.size"
    value = f"CASE WHEN NOT past AND coalesce(state, '') <> '' THEN c.value ELSE coalesce({place}, '') END"
    lake.execute(
        "CREATE OR REPLACE TEMP VIEW cut_images AS SELECT n, image_id, sha256, dropped_by, dropped_value, "
        f"CAST(NULL AS INTEGER) AS cluster, failed FROM {by_rules} UNION ALL "
        "SELECT f.n, i.image_id, i.sha256, f.rule, coalesce(b.image_id, ''), NULL, 0 FROM cut_dropped f "
        "JOIN facts.images i ON i.rowid = f.n LEFT JOIN facts.images b ON b.rowid = f.better UNION ALL "
        f"SELECT c.n, i.image_id, i.sha256, {fate}, {value}, c.cluster, 0 FROM {with_fate} "
        "JOIN facts.images i ON i.rowid = c.n"
    )


def count_cut(lake: Lake) -> tuple[int, int]:
    """Return the numbers of kept images and of all images of this connection's last cut."""
    return lake.query("SELECT count(*) FILTER (dropped_by = ''), count(*) FROM cut_images")[0]
