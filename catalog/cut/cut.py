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

from pairmill.catalog.cut import facts
from pairmill.catalog.cut.early_cut import decide_early
from pairmill.catalog.cut.facts_tables import image_checks
from pairmill.catalog.cut.keepers import read_keepers
from pairmill.catalog.cut.late_cut import balance, judge
from pairmill.catalog.cut.texts import assign_texts, assigned_texts
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.eligible import decided, failed, passed
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import Damaged


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
    _retry_with_rebuilt_facts(decide_early, lake, plan)


def _retry_with_rebuilt_facts(step: Callable[[Lake, Plan], None], lake: Lake, plan: Plan) -> None:
    """Run a step over the facts; if the facts are damaged, discard them and run the step once more."""
    try:
        step(lake, plan)
    except Damaged:
        if not facts.discard(lake):
            raise
        step(lake, plan)


def _cut(lake: Lake, plan: Plan) -> None:
    """Run all steps of the cut in order."""
    decide_early(lake, plan)
    judge(lake, plan)
    with lake.without_tables():
        balance(lake, plan)
        assign_texts(lake, plan, read_keepers(lake))
        _decisions(lake, plan)
    lake.execute(f"CREATE OR REPLACE TEMP VIEW cut_texts AS {assigned_texts()}")


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
