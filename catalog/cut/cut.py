"""Cut: decide for every image, by the facts, whether it is kept or what drops it.

The order is fixed: early rules, exact duplicates, the best surviving member of each duplicate group, a sentence that
passes the rules, the rules on generated texts, the cap of each cluster, texts. Only a prefix of each cluster's order
matters after the cap, so texts need not be generated for others (:mod:`catalog.cut.wanted`): this order, and no other,
gives the dataset of full generation. What lies past a full cluster is dropped by ``balance``, whatever is known of it.

The result stands in temporary views of this connection:

- ``cut_images(n, image_id, sha256, dropped_by, dropped_value, cluster)``: all images, ``cluster`` of those that reached
  the cap, and in their ``dropped_value`` the place by which it decided (``cluster=7 place=40 of 312``, with
  ``cap=35`` behind it where a target set the cap), also of the kept ones, so that nobody has to rank a whole cluster
  again to explain one image;
- ``cut_texts(image_id, place, content, text, similarity)``: the sentences of the kept ones, ``place`` from 1.

It reads the numbered facts of :mod:`catalog.cut.facts_tables`, where ``n`` is an image's row: each step names the
numbers that it drops, no row is written again, and ids are looked up by who reads the views. Joins and windows spill to
disk.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from pairmill.catalog.cut import facts
from pairmill.catalog.cut.cap import balance
from pairmill.catalog.cut.facts_tables import image_checks
from pairmill.catalog.cut.late import judge
from pairmill.catalog.cut.texts import assign_texts, choose_best, group_keepers
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import decided, passed
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import Damaged

Made = TypeVar("Made")


def cut(lake: Lake, plan: Plan) -> int:
    """Make the views ``cut_images`` and ``cut_texts``; return the cap that was applied.

    Raises as `survivors`.
    """
    return _rebuilding_damaged(_cut, lake, plan)


def survivors(lake: Lake, plan: Plan) -> None:
    """Make the table ``cut_survivors(n, picture, cluster, draw)`` of what reaches the rules on generated texts.

    Facts that prove damaged are made anew: DuckDB checks each block of them. Raises Damaged for files of the lake.
    """
    _rebuilding_damaged(_survivors, lake, plan)


def _rebuilding_damaged(step: Callable[[Lake, Plan], Made], lake: Lake, plan: Plan) -> Made:
    """Do a step over the facts, and once more over new ones where these prove damaged."""
    try:
        return step(lake, plan)
    except Damaged:
        if not facts.discard(lake):
            raise
        return step(lake, plan)


def _survivors(lake: Lake, plan: Plan) -> np.ndarray:
    """Make ``cut_survivors``, ``cut_dropped`` and ``cut_best``; return the keepers of sentences."""
    facts.attach(lake, plan)
    keep = passed(image_checks(plan))
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_dropped (n UINTEGER, rule VARCHAR, better UINTEGER)")
    _exact_duplicates(lake, keep)
    _duplicates(lake, keep)
    keepers = group_keepers(lake, plan)
    choose_best(lake, _alive(keep), keepers)
    lake.execute(
        f"INSERT INTO cut_dropped SELECT n, 'no_text', NULL FROM {_alive(keep)} WHERE n NOT IN (SELECT n FROM cut_best)"
    )
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_survivors AS SELECT n, picture, cluster, draw FROM {_alive(keep)}")
    return keepers


def _cut(lake: Lake, plan: Plan) -> int:
    keepers = _survivors(lake, plan)
    judge(lake, plan)
    cap = balance(lake, plan)
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_kept AS SELECT n, picture FROM cut_survivors SEMI JOIN "
        "(SELECT n FROM cut_capped WHERE NOT past AND coalesce(state, '') = '') USING (n)"
    )
    assign_texts(lake, plan, keepers)
    _decisions(lake, plan, cap)
    return cap


def _alive(keep: str) -> str:
    return f"(SELECT *, rowid AS n FROM facts.images WHERE {keep} AND rowid NOT IN (SELECT n FROM cut_dropped))"


def _exact_duplicates(lake: Lake, keep: str) -> None:
    """Keep of equal pictures one, chosen by what stands there. Most pictures are shown once: the others are ranked.

    The id of an image, which holds its place, decides only between places that say the same at the same position.
    """
    shown = f"SELECT * FROM {_alive(keep)} WHERE repeated"
    _keep_first(lake, "exact_duplicate", shown, "picture", "occurrence, image_id")


def _duplicates(lake: Lake, keep: str) -> None:
    """Keep of a duplicate group the most pixels, most bytes, smallest sha256. One in no group is alone."""
    _keep_first(lake, "duplicate", f"SELECT * FROM {_alive(keep)} WHERE group_id IS NOT NULL", "group_id",
                "CAST(width AS BIGINT) * height DESC, n_bytes DESC, sha256")  # fmt: skip


def _keep_first(lake: Lake, rule: str, rows: str, group: str, order: str) -> None:
    """Keep the first of each ``group`` in ``order``; ``rule`` drops the others."""
    window = f"OVER (PARTITION BY {group} ORDER BY {order})"
    lake.execute(
        f"INSERT INTO cut_dropped SELECT n, '{rule}', first_value(n) {window} FROM ({rows}) "
        f"QUALIFY row_number() {window} > 1"
    )


def _decisions(lake: Lake, plan: Plan, cap: int) -> None:
    """Make the view ``cut_images`` over what each step left: who reads it writes out ids, values and reasons."""
    keep = passed(image_checks(plan))
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_textless AS SELECT n FROM cut_kept WHERE n NOT IN (SELECT n FROM cut_given)"
    )
    by_rules = (
        "SELECT n, image_id, sha256, dropped_by, dropped_value, CAST(NULL AS INTEGER) AS cluster FROM "
        f"(SELECT rowid AS n, image_id, sha256, {decided(image_checks(plan))} FROM facts.images "
        f"WHERE ({keep}) IS NOT TRUE)"
    )
    by_others = (
        "SELECT f.n, i.image_id, i.sha256, f.rule, coalesce(b.image_id, ''), NULL FROM cut_dropped f "
        "JOIN facts.images i ON i.rowid = f.n LEFT JOIN facts.images b ON b.rowid = f.better"
    )
    place = "'cluster=' || c.cluster || ' place=' || c.place || ' of ' || c.size"
    if plan.recipe.balance.target:
        place += f" || ' cap={cap}'"
    survivors = (
        "SELECT c.n, i.image_id, i.sha256, CASE WHEN past THEN 'balance' WHEN coalesce(state, '') <> '' THEN state "
        "WHEN t.n IS NOT NULL THEN 'max_uses' ELSE '' END, "
        f"CASE WHEN NOT past AND coalesce(state, '') <> '' THEN c.value ELSE coalesce({place}, '') END, c.cluster "
        "FROM cut_capped c JOIN facts.images i ON i.rowid = c.n LEFT JOIN cut_textless t ON t.n = c.n"
    )
    lake.execute(f"CREATE OR REPLACE TEMP VIEW cut_images AS {by_rules} UNION ALL {by_others} UNION ALL {survivors}")
