"""Run the first steps of a cut, which need no generated text and no cap, and store their results for the next cut.

These *early steps* are the early rules, pictures that people leave out, copies, duplicate groups, and the sentence that
an image gets. They take two thirds of a cut's time. Their tables stay in the connection, and in lakes of EXTENDED rows
in a file for the next process (206 MB at 10M images), with the questions that they answer: a cut that asks the same
does not repeat them.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa

from pairmill.catalog.cut import facts, keepers, texts
from pairmill.catalog.cut.edits import KEPT, LEFT_OUT, read_left_out
from pairmill.catalog.cut.facts_tables import image_checks
from pairmill.catalog.cut.keepers import NOBODY, read_keepers, with_keepers
from pairmill.catalog.cut.kept_file import KeptFile
from pairmill.catalog.cut.texts import best_sentences, candidates
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import passed
from pairmill.catalog.recipe.plan import Plan

IMAGES_AT_ONCE = 2_000_000
# The temporary tables of these steps; the last one has the questions that they answer.
EARLY = ("cut_keepers", "cut_best", "cut_dropped", "cut_survivors", "cut_asked")
# What makes these tables: a file of them is not read by other code.
_CODE = "".join(Path(module).read_text() for module in (__file__, keepers.__file__, texts.__file__))


def decide_early(lake: Lake, plan: Plan) -> None:
    """Create four temporary tables by the early steps, or reuse those of the last cut.

    - ``cut_keepers(sentence, keeper)``: the rows of `with_keepers`;
    - ``cut_best(sentence)``: the result of `best_sentences`, a row per picture;
    - ``cut_dropped(n, rule, better)``: the images that these steps drop after the rules, and what takes their place;
    - ``cut_survivors(n, picture, cluster, draw, best)``: the images that none of these steps drops.

    A changed rule on images makes the last two again. A changed cap or rule on generated texts makes none again.
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
                f"CREATE OR REPLACE TEMP TABLE cut_keepers AS FROM {with_keepers(plan)}; "
                "CREATE OR REPLACE TEMP TABLE cut_best (sentence UINTEGER)"
            )
            lake.insert("cut_best", pa.table({"sentence": best_sentences(lake, plan, read_keepers(lake))}))
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
    """Return the strings of `_questions` for which this connection's temporary tables were made; empty at first."""
    asked = "CREATE TEMP TABLE IF NOT EXISTS cut_asked (question VARCHAR); FROM cut_asked"
    return {question for (question,) in lake.query(asked)}


def _read_early(lake: Lake) -> bool:
    """Copy the tables EARLY from the attached database ``kept``. Return True: for `KeptFile.read`, they were usable."""
    read = "; ".join(f"CREATE OR REPLACE TEMP TABLE {table} AS FROM kept.{table}" for table in EARLY)
    lake.execute(f"DELETE FROM cut_asked; {read}")
    return True


def _questions(lake: Lake, plan: Plan, facts_file: str, keep: str) -> tuple[str, str]:
    """Return two strings: what ``cut_keepers`` and ``cut_best`` depend on, and what ``cut_survivors`` depends on.

    Equal strings mean equal tables. The pictures that people leave out or keep are in them by number and hash.
    """
    of_sentences = repr((facts_file, with_keepers(plan), candidates(plan), plan.recipe.association.at_least))
    acts = ["acts_left_out", *["acts_kept"] * bool(plan.spares)]
    given = " UNION ALL ".join(f"SELECT '{table}', count(*), bit_xor(hash(sha256)) FROM temp.{table}" for table in acts)
    return of_sentences, repr((of_sentences, lake.query(given), keep, plan.spares))


def _drop_copies(lake: Lake, plan: Plan, keep: str) -> None:
    """Drop all but one occurrence of each repeated image, then all but the best image of each duplicate group.

    Occurrences are chosen by their content in the document; the image id, which depends on the location, only breaks
    ties. The best of a group is one that people keep, else has most pixels, most bytes, the smallest sha256.
    """
    alive = f"SELECT *, rowid AS n FROM facts.images WHERE {keep} AND rowid NOT IN (SELECT n FROM cut_dropped)"
    _keep_first(lake, "exact_duplicate", f"{alive} AND repeated", "picture", "occurrence, image_id")
    kept = f"(sha256 IN (SELECT sha256 FROM {KEPT})) DESC, " if plan.spares else ""
    best = f"{kept}CAST(width AS BIGINT) * height DESC, n_bytes DESC, sha256"
    _keep_first(lake, "duplicate", f"{alive} AND group_id IS NOT NULL", "group_id", best)


def _keep_first(lake: Lake, rule: str, rows: str, group: str, order: str) -> None:
    """Sort the ``rows`` of each ``group`` by ``order``; drop all but the first, by ``rule``."""
    window = f"OVER (PARTITION BY {group} ORDER BY {order})"
    lake.execute(
        f"INSERT INTO cut_dropped SELECT n, '{rule}', first_value(n) {window} FROM ({rows}) "
        f"QUALIFY row_number() {window} > 1"
    )


def _drop_textless(lake: Lake, plan: Plan, keep: str) -> None:
    """Create ``cut_survivors``: the images that pass ``keep`` and are not in ``cut_dropped``.

    If the recipe demands a sentence, images without one go into ``cut_dropped`` instead, by the rule ``no_text``.
    ``keep`` is the SQL condition of the early rules.
    """
    best = lake.table("FROM cut_best")["sentence"].to_numpy()
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
