"""The cut: facts in, one decision for every image out, all of it SQL over committed rows.

The order is fixed: item rules, exact duplicates, the best surviving member of each duplicate group, the cap of each
cluster, texts, then the rules on what captioning made. The result stands in temporary tables of this connection:

- ``cut_images(image_id, sha256, document_id, width, height, n_bytes, dropped_by, dropped_value, cluster)``: all images;
- ``cut_texts(image_id, place, content, similarity)``: the sentences of the kept ones, ``place`` from 1.

Windows and joins spill to disk, so 30M images need no more memory than DuckDB is given. ``cut_texts`` runs a few
rounds of joins over the candidates of the kept images only (12 rows an image at top_k 3).
"""

from dataclasses import replace

from catalog.lake import Lake
from catalog.plan import Plan, Stage
from catalog.worklist import image_rows, sentence_rows

MAX_ROUNDS = 10_000  # deferred acceptance ends by itself; a guard against an endless loop of a wrong query


def cut(lake: Lake, plan: Plan, upto: int | None = None) -> None:
    """Fill the two temporary tables from rows of commits <= ``upto``: what is to be captioned."""
    _item_rules(lake, plan, upto)
    _keepers(lake, plan, upto)
    _cap(lake, plan, upto)
    _texts(lake, plan, upto)


def cut_after_captions(lake: Lake, plan: Plan, upto: int | None = None) -> None:
    """Apply the rules on captions to the kept images of :func:`cut`: last, so that they cost no other image a place."""
    late = [check for check in plan.image_checks if check.stage >= Stage.CAPTION]
    if not late:
        return
    rows = image_rows(
        replace(plan, image_checks=tuple(replace(c, stage=Stage.INGEST) for c in late)), Stage.PIXELS, upto
    )
    lake.execute(
        "UPDATE cut_images SET dropped_by = late.dropped_by, dropped_value = late.dropped_value "
        f"FROM ({rows}) late WHERE late.image_id = cut_images.image_id AND cut_images.dropped_by = '' "
        "AND late.dropped_by <> ''"
    )


def _item_rules(lake: Lake, plan: Plan, upto: int | None) -> None:
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE cut_images AS SELECT image_id, sha256, document_id, width, height, n_bytes, "
        f"dropped_by, dropped_value, CAST(NULL AS INTEGER) AS cluster FROM ({image_rows(plan, Stage.CAPTION, upto)})"
    )


def _keepers(lake: Lake, plan: Plan, upto: int | None) -> None:
    """Exact copies first (smallest id stays), then groups (most pixels, most bytes, smallest id stays)."""
    _drop_lower(lake, "exact_duplicate", "sha256", "", "image_id")
    groups = f"LEFT JOIN {_newest_groups(plan, upto)} g ON g.sha256 = c.sha256"
    best = "CAST(c.width AS BIGINT) * c.height DESC, c.n_bytes DESC, c.image_id"
    _drop_lower(lake, "duplicate", "coalesce(g.group_id, c.sha256)", groups, best)


def _drop_lower(lake: Lake, rule: str, group: str, join: str, order: str) -> None:
    order = order if "." in order else f"c.{order}"
    group = group if "(" in group else f"c.{group}"
    window = f"OVER (PARTITION BY {group} ORDER BY {order})"
    lake.execute(
        f"UPDATE cut_images SET dropped_by = '{rule}', dropped_value = loser.keeper FROM ("
        f"SELECT c.image_id, first_value(c.image_id) {window} AS keeper FROM cut_images c {join} "
        f"WHERE c.dropped_by = '' QUALIFY row_number() {window} > 1) loser "
        "WHERE loser.image_id = cut_images.image_id"
    )


def _newest_groups(plan: Plan, upto: int | None) -> str:
    """SQL: the groups of the newest grouping that ``upto`` may see; each grouping is a whole snapshot."""
    scorer = plan.scorer("image_groups")
    where = f"scorer = '{scorer}'" + ("" if upto is None else f" AND commit <= {upto}")
    return (
        f"(SELECT * FROM image_groups WHERE {where} AND commit = (SELECT max(commit) FROM image_groups WHERE {where}))"
    )


def _cap(lake: Lake, plan: Plan, upto: int | None) -> None:
    """At most ``balance.cap`` survivors a cluster: those with the smallest sha256(image_id || seed)."""
    visible = "" if upto is None else f" AND k.commit <= {upto}"
    lake.execute(
        "UPDATE cut_images SET cluster = k.cluster FROM clusters k "
        f"WHERE k.scorer = '{plan.scorer('image_clusters')}' AND k.key = cut_images.sha256{visible}"
    )
    balance, seed = plan.recipe.balance, plan.recipe.seed
    window = f"OVER (PARTITION BY cluster ORDER BY sha256(image_id || '{seed}'))"
    lake.execute(
        "UPDATE cut_images SET dropped_by = 'balance', dropped_value = 'cluster=' || loser.cluster FROM ("
        "SELECT image_id, cluster FROM cut_images WHERE dropped_by = '' AND cluster IS NOT NULL "
        f"QUALIFY row_number() {window} > {balance.cap}) loser WHERE loser.image_id = cut_images.image_id"
    )


def _texts(lake: Lake, plan: Plan, upto: int | None) -> None:
    """Give each kept image its ``top_k`` best surviving sentences, each sentence to ``max_uses`` images at most.

    Deferred acceptance (Gale and Shapley 1962): every image holds out for its best candidates, every sentence keeps the
    ``max_uses`` nearest images (ties: smaller image id), the refused ones ask their next candidate. Both sides rank by
    the one similarity, so the outcome is unique and equals taking all pairs in order of similarity.
    """
    association = plan.recipe.association
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE candidates AS SELECT c.image_id, m.content, m.similarity, false AS refused "
        f"FROM cut_images c JOIN {matches(plan, upto)} m ON m.sha256 = c.sha256 "
        f"JOIN ({sentence_rows(plan, Stage.CAPTION, upto)}) s ON s.content = m.content AND s.dropped_by = '' "
        "WHERE c.dropped_by = ''"
    )
    lake.execute(_HELD.format(top_k=association.top_k))
    for _ in range(MAX_ROUNDS):
        refused = lake.query(
            "SELECT count(*) FROM (SELECT 1 FROM held QUALIFY row_number() OVER "
            f"(PARTITION BY content ORDER BY similarity DESC, image_id) > {association.max_uses})"
        )[0][0]
        if not refused:
            break
        lake.execute(
            "UPDATE candidates SET refused = true FROM (SELECT image_id, content FROM held QUALIFY row_number() OVER "
            f"(PARTITION BY content ORDER BY similarity DESC, image_id) > {association.max_uses}) r "
            "WHERE r.image_id = candidates.image_id AND r.content = candidates.content"
        )
        lake.execute(_HELD.format(top_k=association.top_k))
    lake.execute("CREATE OR REPLACE TEMP TABLE cut_texts AS SELECT image_id, place, content, similarity FROM held")
    lake.execute(
        "UPDATE cut_images SET dropped_by = 'no_text', dropped_value = '' WHERE dropped_by = '' "
        "AND image_id NOT IN (SELECT image_id FROM cut_texts)"
    )


_HELD = (
    "CREATE OR REPLACE TEMP TABLE held AS SELECT image_id, content, similarity, "
    "row_number() OVER (PARTITION BY image_id ORDER BY similarity DESC, content) AS place "
    "FROM candidates WHERE NOT refused QUALIFY place <= {top_k}"
)


def matches(plan: Plan, upto: int | None = None) -> str:
    """SQL: the best 4 x top_k candidates of each picture over all cluster ranges and runs."""
    where = f"scorer = '{plan.scorer('matches')}'" + ("" if upto is None else f" AND commit <= {upto}")
    keep = 4 * plan.recipe.association.top_k
    return (
        f"(SELECT sha256, content, max(similarity) AS similarity FROM match_candidates WHERE {where} "
        "GROUP BY sha256, content QUALIFY row_number() OVER "
        "(PARTITION BY sha256 ORDER BY max(similarity) DESC, content) "
        f"<= {keep})"
    )
