"""The cut: facts in, one decision for every image out, all of it SQL over committed rows.

The order is fixed: item rules, exact duplicates, the best surviving member of each duplicate group, the cap of each
cluster, texts, then the rules on what captioning made. The result stands in temporary tables of this connection:

- ``cut_images(n, image_id, sha256, dropped_by, dropped_value, cluster)``: all images, ``cluster`` of those that came
  as far as the cap, and in their ``dropped_value`` the place by which it decided (``cluster=7 place=40 of 312``), also
  of the kept ones, so that nobody has to rank a whole cluster again to explain one image;
- ``cut_texts(image_id, place, content, similarity)``: the sentences of the kept ones, ``place`` from 1.

The rows are joined to scores once, with no more columns than the steps read. From there on a row is a number ``n``,
each step names the numbers that fall, and nothing is updated: at 10M images an UPDATE by 32-character ids took longer
than the whole chain of tables takes. Joins and windows spill to disk.
"""

from dataclasses import replace

from catalog.lake import Lake
from catalog.plan import Plan, Stage
from catalog.texts import hand_out
from catalog.worklist import image_rows


def cut(lake: Lake, plan: Plan, upto: int | None = None) -> None:
    """Fill the two temporary tables from rows of commits <= ``upto``: what is to be captioned."""
    _item_rules(lake, plan, upto)
    _exact_duplicates(lake)
    _duplicates(lake, plan, upto)
    _cap(lake, plan, upto)
    hand_out(lake, plan, upto)
    _decisions(lake)


def cut_after_captions(lake: Lake, plan: Plan, upto: int | None = None) -> None:
    """Apply the rules on captions to the kept images of :func:`cut`: last, so that they cost no other image a place."""
    late = [check for check in plan.image_checks if check.stage >= Stage.CAPTION]
    if not late:
        return
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_kept AS SELECT n, image_id, sha256 FROM cut_images WHERE dropped_by = ''"
    )
    checks = tuple(replace(check, stage=Stage.INGEST) for check in late)
    rows = image_rows(replace(plan, image_checks=checks), Stage.PIXELS, upto, among="cut_kept")
    lake.execute(
        f"INSERT INTO cut_fallen SELECT k.n, late.dropped_by, late.dropped_value FROM ({rows}) late "
        "JOIN cut_kept k ON k.image_id = late.image_id WHERE late.dropped_by <> ''"
    )


def _item_rules(lake: Lake, plan: Plan, upto: int | None) -> None:
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_rows AS SELECT image_id, sha256, CAST(width AS BIGINT) * height AS pixels, "
        f"n_bytes, dropped_by, dropped_value FROM ({image_rows(plan, Stage.CAPTION, upto)})"
    )
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_fallen (n BIGINT, dropped_by VARCHAR, dropped_value VARCHAR)")


_ALIVE = "(SELECT rowid AS n, * FROM cut_rows WHERE dropped_by = '' AND rowid NOT IN (SELECT n FROM cut_fallen)) c"


def _exact_duplicates(lake: Lake) -> None:
    """Of equal pictures the smallest image id stays. Most pictures are shown once: only the others are ranked."""
    repeated = f"SELECT sha256 FROM {_ALIVE} GROUP BY sha256 HAVING count(*) > 1"
    _fall(lake, "exact_duplicate", f"SELECT c.* FROM {_ALIVE} SEMI JOIN ({repeated}) r ON r.sha256 = c.sha256",
          "sha256", "image_id")  # fmt: skip


def _duplicates(lake: Lake, plan: Plan, upto: int | None) -> None:
    """Of a duplicate group the most pixels, most bytes, smallest id stays. A picture in no group is one of its own, of
    the id that a group has by its smallest member."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_groups AS {_newest_groups(plan, upto)}")
    grouped = (
        "SELECT sha256, group_id FROM cut_groups UNION ALL SELECT DISTINCT group_id, group_id FROM cut_groups "
        "WHERE group_id NOT IN (SELECT sha256 FROM cut_groups)"
    )
    _fall(lake, "duplicate", f"SELECT c.*, g.group_id FROM {_ALIVE} JOIN ({grouped}) g ON g.sha256 = c.sha256",
          "group_id", "pixels DESC, n_bytes DESC, image_id")  # fmt: skip


def _fall(lake: Lake, rule: str, rows: str, group: str, order: str) -> None:
    window = f"OVER (PARTITION BY {group} ORDER BY {order})"
    lake.execute(
        f"INSERT INTO cut_fallen SELECT n, '{rule}', first_value(image_id) {window} FROM ({rows}) "
        f"QUALIFY row_number() {window} > 1"
    )


def _newest_groups(plan: Plan, upto: int | None) -> str:
    """SQL: the groups of the newest grouping that ``upto`` may see; each grouping is a whole snapshot."""
    scorer = plan.scorer("image_groups")
    where = f"scorer = '{scorer}'" + ("" if upto is None else f" AND commit <= {upto}")
    return (
        f"SELECT sha256, group_id FROM image_groups WHERE {where} "
        f"AND commit = (SELECT max(commit) FROM image_groups WHERE {where})"
    )


def _cap(lake: Lake, plan: Plan, upto: int | None) -> None:
    """At most ``balance.cap`` survivors a cluster: those with the smallest sha256(image_id || seed)."""
    visible = "" if upto is None else f" AND commit <= {upto}"
    clusters = f"(SELECT key, cluster FROM clusters WHERE scorer = '{plan.scorer('image_clusters')}'{visible})"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_survivors AS SELECT c.n, c.image_id, c.sha256, k.cluster FROM {_ALIVE} "
        f"LEFT JOIN {clusters} k ON k.key = c.sha256"
    )
    # 80 bits of it order the few hundred images of a cluster, at half the cost of sorting by all 256. A table of its
    # own, because the ids would be sorted with it.
    order = f"ORDER BY left(sha256(image_id || '{plan.recipe.seed}'), 20)"
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE cut_places AS SELECT n, row_number() OVER (PARTITION BY cluster {order}) AS "
        "place, count(*) OVER (PARTITION BY cluster) AS size FROM cut_survivors WHERE cluster IS NOT NULL"
    )
    lake.execute(
        f"INSERT INTO cut_fallen SELECT n, 'balance', NULL FROM cut_places WHERE place > {plan.recipe.balance.cap}"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_kept AS SELECT n, image_id, sha256 FROM cut_survivors "
        "WHERE n NOT IN (SELECT n FROM cut_fallen)"
    )


def _decisions(lake: Lake) -> None:
    """The view over what each step left: no row is written again."""
    lake.execute(
        "INSERT INTO cut_fallen SELECT n, 'no_text', NULL FROM cut_survivors "
        "WHERE n IN (SELECT n FROM cut_kept WHERE image_id NOT IN (SELECT image_id FROM cut_texts))"
    )
    lake.execute(
        "CREATE OR REPLACE TEMP VIEW cut_images AS "
        "SELECT n, image_id, sha256, dropped_by, dropped_value, CAST(NULL AS INTEGER) AS cluster "
        "FROM (SELECT rowid AS n, * FROM cut_rows) WHERE dropped_by <> '' UNION ALL "
        "SELECT f.n, r.image_id, r.sha256, f.dropped_by, f.dropped_value, NULL FROM cut_fallen f JOIN cut_rows r "
        "ON r.rowid = f.n WHERE f.dropped_by IN ('exact_duplicate', 'duplicate') UNION ALL "
        "SELECT s.n, s.image_id, s.sha256, coalesce(f.dropped_by, ''), "
        "coalesce(f.dropped_value, 'cluster=' || s.cluster || ' place=' || p.place || ' of ' || p.size, ''), s.cluster "
        "FROM cut_survivors s LEFT JOIN cut_places p ON p.n = s.n LEFT JOIN cut_fallen f ON f.n = s.n"
    )
