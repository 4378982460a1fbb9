"""Collect the lake's rows on one image occurrence: its origin, its scores, and why it was kept or dropped."""

import re

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.chosen_captions import chosen_rows, rows_by_text, text_digest
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.training import SURVIVORS
from pairmill.catalog.queries.captioned import all_captions
from pairmill.catalog.queries.edit_preview import edited_texts, verdicts_on
from pairmill.catalog.queries.explain import why
from pairmill.catalog.queries.explain.why import Facts, Scope, quarantine, rows_of_key, scores
from pairmill.catalog.queries.explain.why_sentence import representative_texts
from pairmill.catalog.recipe.plan import CAPTION_TABLES
from pairmill.catalog.terms import text_columns

_TEXTS = {
    "captions": "'caption' AS kind, captioner AS \"by\", text, status",
    "tags": "'tags' AS kind, '' AS \"by\", coalesce(nullif(array_to_string(tags, ', '), ''), '(none)') AS text, "
    "'ok' AS status",
    "synthetic": "'synthetic' AS kind, '' AS \"by\", synthetic_text AS text, synthetic_status AS status",
}


def explain_image(lake: Lake, image_id: str, scope: Scope) -> Facts:
    """Return everything that the lake knows of an image occurrence, as a dictionary of its parts.

    Keys: ``origin, scores, rules, decision, group, cluster, matches, texts, edits, verdicts, quarantine, datasets``.
    """
    return lake.retrying(lambda: _explain(lake, image_id, scope))


def _explain(lake: Lake, image_id: str, scope: Scope) -> Facts:
    """Collect the parts of `explain_image` within one transaction."""
    origin = _origin(lake, image_id, scope)
    sha256 = origin["sha256"]
    in_home_shard = why.home_filter(lake, "image_content", "sha256", sha256)
    measured = scores(lake, scope, scope.tables("image"), "sha256", sha256, in_home_shard)
    checks = scope.plan.image_checks if scope.plan else ()
    group = _group(lake, sha256, scope)
    others = _other_images(lake, sha256, group, scope)
    decided = decisions(lake, [image_id, *(row["image_id"] for row in others)])
    faults = "item IN (?, ?) OR payload_ref = ?", (sha256, origin["url"], sha256)
    decision = _decision(decided[image_id], scope)
    edits = edited_texts(lake, scope.dataset, image_id) if scope.dataset else []
    return {
        "origin": origin,
        "scores": measured,
        "rules": why.evaluate_rules(lake, checks, scope.tables("image"), {**origin, **measured}),
        "decision": decision,
        "group": _group_members(lake, sha256, group, others, decided, scope),
        "cluster": _cluster(lake, sha256, scope, decision),
        "matches": _matches(lake, image_id, sha256, scope, decision, edits),
        "texts": _generated_texts(lake, sha256, scope, in_home_shard),
        "edits": edits,
        "verdicts": verdicts_on(lake, scope.dataset, sha256) if scope.dataset else [],
        "quarantine": quarantine(lake, *faults) if "quarantine" in scope.filled else [],
        "datasets": decided[image_id],
    }


def _origin(lake: Lake, image_id: str, scope: Scope) -> Facts:
    """Return the image's row, page, run and number of occurrences, each by a query: a join would scan all documents."""
    columns = 'image_id, sha256, url, position, alt_text, width, height, format, n_bytes, document_id, "commit"'
    rows = lake.rows(f"SELECT {columns} FROM images WHERE image_id = ?", (image_id,))
    found = max(rows, key=lambda row: row["commit"])
    page = rows_of_key(lake, scope, "documents", "uri AS document, title, source", "document_id", found["document_id"])
    run = 'SELECT run_id, "at" AS ingested FROM commits WHERE list_contains(?, "commit")'
    made = lake.rows(run, ([found.pop("commit")],))
    counting = f"document_id NOT IN {gone_documents()}"
    same = lake.rows(f"SELECT count(*) AS occurrences FROM images WHERE sha256 = ? AND {counting}", (found["sha256"],))
    found["superseded"] = why.superseded_at(lake, found["document_id"])
    absent = dict.fromkeys(("document", "title", "source", "run_id", "ingested"))
    return found | absent | {name: value for rows in (page, made, same) for row in rows[:1]
                             for name, value in row.items()}  # fmt: skip


def _decision(decided: list[Facts], scope: Scope) -> Facts:
    """Return the decision of the dataset in scope, {} if there is none."""
    for row in decided:
        if scope.dataset and (row["dataset"], row["version"]) == (scope.dataset.name, scope.dataset.version):
            return {"dataset": str(scope.dataset), "dropped_by": row["dropped_by"], "value": row["value"]}
    return {}


def _group(lake: Lake, sha256: str, scope: Scope) -> Facts:
    """Return the image's row in the newest ``image_groups`` in scope, {} if it is in no group."""
    if not (rows := rows_of_key(lake, scope, "image_groups", "*", "sha256", sha256)):
        return {}
    newest = """SELECT max("commit") FROM image_groups WHERE "commit" <= ? AND (scorer = ? OR ?)"""
    asked = scope.upto, scope.scorers.get("image_groups", ""), scope.dataset is None
    last = lake.query(newest, asked)[0][0]
    return next((row for row in rows if row["commit"] == last), {})


def _other_images(lake: Lake, sha256: str, group: Facts, scope: Scope) -> list[Facts]:
    """Select occurrences of the group's other images; up to MOST one by one, since `=` opens only their files."""
    if not group:
        return []
    members = rows_of_key(lake, scope, "image_groups", 'sha256, scorer, "commit"', "group_id", group["group_id"])
    grouping = group["scorer"], group["commit"]
    same = {row["sha256"] for row in members if (row["scorer"], row["commit"]) == grouping}
    if not (keys := [quoted(other) for other in sorted(same - {sha256})]):
        return []
    wheres = [f"= {key}" for key in keys] if len(keys) <= why.MOST else [f"IN ({', '.join(keys)})"]
    each = "SELECT image_id, url, width, height, sha256 FROM images WHERE sha256"
    return lake.rows(" UNION ALL ".join(f"{each} {where}" for where in wheres))


def _group_members(
    lake: Lake, sha256: str, group: Facts, others: list[Facts], decided: dict[str, list[Facts]], scope: Scope
) -> Facts:
    """Return the duplicate group: its size, and its other members with distance and decision, kept ones first."""
    if not group:
        return {}
    near = _distances(lake, sha256, scope)
    shown = [
        {"dropped_by": _decision(decided[row["image_id"]], scope).get("dropped_by"),
         "near": near.get(row["sha256"]), **row}
        for row in others
    ]  # fmt: skip
    order = {"": 0, None: 2}
    shown.sort(key=lambda row: (order.get(row["dropped_by"], 1), row["image_id"]))
    return {"group_id": group["group_id"], "pictures": group["group_size"], "others": shown[: why.MOST]}


def _distances(lake: Lake, sha256: str, scope: Scope) -> dict[str, str]:
    """Return kind and distance of every duplicate edge as text, by the sha256 of the other image."""
    if "duplicate_edges" not in scope.filled:
        return {}
    sql = """SELECT other, string_agg(DISTINCT said, ', ' ORDER BY said) FROM (SELECT if(a = ?, b, a) AS other,
        kind || ' distance ' || distance AS said FROM duplicate_edges WHERE a = ? OR b = ?) GROUP BY other"""
    return dict(lake.query(sql, (sha256, sha256, sha256)))


def _cluster(lake: Lake, sha256: str, scope: Scope, decision: Facts) -> Facts:
    """Return the cluster that balance caps, the recipe's cap, and the rank among survivors if the cap decided."""
    asked = scope.plan.recipe.balance if scope.plan else None
    if asked is not None and asked.cap is None:
        return {}
    cap = {} if asked is None else {"cap": asked.cap}
    if at := re.fullmatch(r"cluster=(\d+) place=(\d+) of (\d+)", decision.get("value") or ""):
        return {"cluster": int(at[1]), "rank": int(at[2]), "survivors": int(at[3]), **cap}
    rows = rows_of_key(lake, scope, "clusters", 'cluster, scorer, "commit"', "key", sha256)
    # An image also has clusters of other kinds, for duplicates and sentences.
    ours = {digest for (digest,) in lake.query("SELECT digest FROM scorers WHERE name = ?", (SURVIVORS.clusters,))}
    found = scope.newest([row for row in rows if row["scorer"] in ours], scope.scorers.get(SURVIVORS.clusters, ""))
    return {"cluster": found["cluster"], **cap} if found else {}


def _matches(lake: Lake, image_id: str, sha256: str, scope: Scope, decision: Facts, edits: list[Facts]) -> list[Facts]:
    """Return the candidates, most similar first, with ``place`` in the pair, and ``given``, what stands for them."""
    scorer = scope.scorers.get("matches", "")
    most = 4 * scope.plan.recipe.association.top_k if scope.plan else why.MOST
    rows = rows_of_key(lake, scope, "match_candidates", 'content, similarity, scorer, "commit"', "sha256", sha256)
    rows = [row for row in rows if row["commit"] <= scope.upto and (not scorer or row["scorer"] == scorer)]
    newest = max(rows, key=lambda row: row["commit"])["scorer"] if rows else ""
    best: dict[str, float] = {}
    for row in rows:
        if row["scorer"] == newest:
            best[row["content"]] = max(row["similarity"], best.get(row["content"], row["similarity"]))
    found = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    keys = ", ".join(quoted(content) for content, _ in found)  # constants: a join would read every sentence of the lake
    rows = lake.rows(f"SELECT content, text FROM sentence_content WHERE content IN ({keys or 'NULL'})")
    text: dict[str, str] = {row["content"]: row["text"] for row in rows}
    place = _text_numbers(lake, image_id, scope, decision, edits)
    others = [content for content in text if text[content] not in place]
    given = representative_texts(lake, scope, others, place.keys() - set(text.values()))
    shown = [(content, text[content], similarity) for content, similarity in found if content in text]
    return [
        {"content": content, "text": said, "similarity": similarity, "place": place.get(given.get(content, said)),
         "given": given.get(content, "")}
        for content, said, similarity in shown
    ]  # fmt: skip


def _text_numbers(lake: Lake, image_id: str, scope: Scope, decision: Facts, edits: list[Facts]) -> dict[str, int]:
    """Return text as it was made -> rank, 1 to 5, of the sentences in the image's pair; {} if it was dropped."""
    if scope.dataset is None or decision.get("dropped_by"):
        return {}
    of_dataset = f" AND {scope.dataset.where}"
    texts = ", ".join(text_columns.texts(scope.dataset.n_texts))
    rows = rows_of_key(lake, scope, "pairs", texts, "image_id", image_id, of_dataset)
    made = {each["field"]: each["before"] for each in edits}
    return {
        text: n for row in rows for n, text in enumerate((row | {k: made[k] for k in made if k in row}).values(), 1)
    }


def decisions(lake: Lake, image_ids: list[str]) -> dict[str, list[Facts]]:
    """Return image id -> decisions of all dataset versions on the image, sorted by dataset and version.

    One query for two images at 10M images and five versions takes 0.07 s, two queries take 0.10.
    """
    keys = ", ".join(quoted(image_id) for image_id in image_ids)
    rows = lake.rows(f"SELECT item_id, dataset, version, dropped_by, value FROM decisions WHERE item_id IN ({keys})")
    found: dict[str, list[Facts]] = {image_id: [] for image_id in image_ids}
    for row in sorted(rows, key=lambda row: (row["dataset"], row["version"])):
        found[row.pop("item_id")].append(row)
    return found


def _generated_texts(lake: Lake, sha256: str, scope: Scope, in_home_shard: str) -> list[Facts]:
    """Return all captions, tags and fused texts of the image, oldest first.

    ``current``: by a scorer of the dataset. Current captions also have ``by``, the recipe's name of the captioner,
    ``similarity`` if computed, and with several captioners ``chosen``: whether this text is the image's caption, and
    ``score``: the (name, value) by which it was compared, if that is another than the similarity.
    """
    current, by_scorer = set(scope.scorers.values()), _captioners_of(lake, sha256, scope, in_home_shard)
    name, compared = _comparing_score(lake, sha256, scope, in_home_shard)
    found = []
    for table, columns in _TEXTS.items():
        rows = rows_of_key(lake, scope, table, f'{columns}, scorer, "commit"', "sha256", sha256, in_home_shard)
        for row in rows:
            scorer = row.pop("scorer")
            of_it = by_scorer.get(scorer, {}) if table == "captions" else {}
            if of_it and row["text"] in compared:
                row["score"] = (name, compared[row["text"]])
            found.append({"current": scorer in current or bool(of_it), **row, **of_it})
    return sorted(found, key=lambda row: (row["commit"], row["kind"]))


def _captioners_of(lake: Lake, sha256: str, scope: Scope, in_home_shard: str) -> dict[str, Facts]:
    """Return, by scorer, the dataset's captioners that described the image: name, similarity, and whether chosen."""
    plan = scope.plan
    if plan is None or not plan.recipe.captioned_by or "captions" not in scope.filled:
        return {}
    only = f"sha256 = {quoted(sha256)}{in_home_shard}"
    rows = lake.rows(f"SELECT place, similarity FROM ({all_captions(plan, scope.upto, only)})")
    chosen = lake.query(f"SELECT captioner FROM {chosen_rows(plan, 'captions', scope.upto, only)}")
    found = {}
    for row in rows:
        name = plan.recipe.captioned_by[row["place"]].name
        several = {"chosen": (name,) in chosen} if len(plan.recipe.captioned_by) > 1 else {}
        scorer = plan.scorer(plan.of_captioner("captions", row["place"]))
        found[scorer] = {"by": name, "similarity": row["similarity"], **several}
    return found


def _comparing_score(lake: Lake, sha256: str, scope: Scope, in_home_shard: str) -> tuple[str, dict[str, float]]:
    """Return the score that compares captions, and its value for each text; ('', {}) for the CLIP's similarity."""
    plan = scope.plan
    if plan is None or len(plan.recipe.captioned_by) < 2 or plan.recipe.captions.way != "best":
        return "", {}
    by = plan.compared_by
    if by.table in CAPTION_TABLES or by.table not in scope.filled:
        return "", {}
    name = plan.recipe.captions.by
    only = f"sha256 = {quoted(sha256)}{in_home_shard}"
    scores = rows_by_text(plan, by.table, scope.upto, only)
    texts = f"SELECT DISTINCT text FROM captions WHERE {only}"
    sql = f"SELECT text, {by.source[name]} FROM ({texts}) c JOIN {scores} s ON s.input_digest = {text_digest('c.text')}"
    return name, dict(lake.query(sql))
