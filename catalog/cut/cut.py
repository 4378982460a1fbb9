"""Cut: decide for every image, by the facts, whether it is kept or what drops it.

The order is fixed: item rules, exact duplicates, the best surviving member of each duplicate group, the cap of each
cluster, texts, then the rules on what captioning made. The result stands in temporary views of this connection:

- ``cut_images(n, image_id, sha256, dropped_by, dropped_value, cluster)``: all images, ``cluster`` of those that reached
  the cap, and in their ``dropped_value`` the place by which it decided (``cluster=7 place=40 of 312``), also of the
  kept ones, so that nobody has to rank a whole cluster again to explain one image;
- ``cut_texts(image_id, place, content, text, similarity)``: the sentences of the kept ones, ``place`` from 1.

It reads the numbered facts of :mod:`catalog.cut.facts_tables`, where ``n`` is an image's row: each step names the
numbers that it drops, no row is written again, and ids are looked up by who reads the views. Joins and windows spill to
disk.
"""

from dataclasses import replace

from catalog.cut import facts
from catalog.cut.facts_tables import image_checks
from catalog.cut.texts import assign_texts
from catalog.lake.lake import Lake
from catalog.pending.eligible import decided, image_rows, passed
from catalog.recipe.plan import Plan
from catalog.terms.error import Damaged
from catalog.terms.score import Stage


def cut(lake: Lake, plan: Plan) -> None:
    """Make the views ``cut_images`` and ``cut_texts`` by all rules but those on captions.

    Facts that prove damaged are made anew: DuckDB checks each block of them. Raises Damaged for files of the lake.
    """
    try:
        _cut(lake, plan)
    except Damaged:
        if not facts.discard(lake):
            raise
        _cut(lake, plan)


def _cut(lake: Lake, plan: Plan) -> None:
    facts.attach(lake, plan)
    keep = passed(image_checks(plan))
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_dropped (n UINTEGER, rule VARCHAR, better UINTEGER)")
    _exact_duplicates(lake, keep)
    _duplicates(lake, keep)
    _cap(lake, plan, keep)
    assign_texts(lake, plan)
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_late (n UINTEGER, dropped_by VARCHAR, dropped_value VARCHAR)")
    _decisions(lake, plan, keep)


def cut_after_captions(lake: Lake, plan: Plan) -> None:
    """Apply the rules on captions to the kept images of :func:`cut`: last, so that they cost no other image a place."""
    late = [check for check in plan.image_checks if check.stage >= Stage.CAPTION]
    if not late:
        return
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_kept AS SELECT n, image_id, sha256 FROM cut_images WHERE dropped_by = ''"
    )
    checks = tuple(replace(check, stage=Stage.INGEST) for check in late)
    rows = image_rows(replace(plan, image_checks=checks), Stage.PIXELS, among="cut_kept")
    lake.execute(
        f"INSERT INTO cut_late SELECT k.n, late.dropped_by, late.dropped_value FROM ({rows}) late "
        "JOIN cut_kept k ON k.image_id = late.image_id WHERE late.dropped_by <> ''"
    )


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


def _cap(lake: Lake, plan: Plan, keep: str) -> None:
    """Keep at most ``balance.cap`` survivors a cluster: those with the smallest sha256(sha256 || seed).

    Of its 64 bits two are equal in one of the clusters of 10M images once in 10^9 lakes.
    """
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_survivors AS SELECT n, picture, cluster, CASE WHEN cluster IS NOT NULL THEN "
        f"row_number() OVER (PARTITION BY cluster ORDER BY draw) END AS place FROM {_alive(keep)}"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_sizes AS SELECT cluster, count(*) AS size FROM cut_survivors GROUP BY cluster"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_kept AS SELECT n, picture FROM cut_survivors "
        f"WHERE coalesce(place <= {plan.recipe.balance.cap}, true)"
    )


def _decisions(lake: Lake, plan: Plan, keep: str) -> None:
    """Make the view ``cut_images`` over what each step left: who reads it writes out ids, values and reasons."""
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_textless AS SELECT n FROM cut_kept WHERE n NOT IN (SELECT n FROM cut_given)"
    )
    by_rules = (
        "SELECT n, image_id, sha256, dropped_by, dropped_value, CAST(NULL AS INTEGER) AS cluster FROM "
        f"(SELECT rowid AS n, image_id, sha256, {decided(image_checks(plan))} FROM facts.images "
        f"WHERE ({keep}) IS NOT TRUE)"
    )
    by_others = (
        "SELECT f.n, i.image_id, i.sha256, f.rule, b.image_id, NULL FROM cut_dropped f "
        "JOIN facts.images i ON i.rowid = f.n JOIN facts.images b ON b.rowid = f.better"
    )
    survivors = (
        "SELECT s.n, i.image_id, i.sha256, "
        f"CASE WHEN coalesce(s.place > {plan.recipe.balance.cap}, false) THEN 'balance' "
        "WHEN t.n IS NOT NULL THEN 'no_text' ELSE coalesce(l.dropped_by, '') END, "
        "coalesce(l.dropped_value, 'cluster=' || s.cluster || ' place=' || s.place || ' of ' || z.size, ''), s.cluster "
        "FROM cut_survivors s JOIN facts.images i ON i.rowid = s.n LEFT JOIN cut_sizes z ON z.cluster = s.cluster "
        "LEFT JOIN cut_textless t ON t.n = s.n LEFT JOIN cut_late l ON l.n = s.n"
    )
    lake.execute(f"CREATE OR REPLACE TEMP VIEW cut_images AS {by_rules} UNION ALL {by_others} UNION ALL {survivors}")
