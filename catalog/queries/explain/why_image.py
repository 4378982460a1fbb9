"""Collect the lake's rows on one image occurrence: its origin, its scores, and why it was kept or dropped."""

import re

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.superseded import gone_documents
from pairmill.catalog.pending.training import SURVIVORS
from pairmill.catalog.queries.explain.sentence_groups import representative_texts
from pairmill.catalog.queries.explain.why import (
    MOST,
    Facts,
    Scope,
    evaluate_rules,
    home_filter,
    quarantine,
    rows_of_key,
    scores,
    superseded_at,
)
from pairmill.catalog.queries.explain.why_texts import texts_of
from pairmill.catalog.terms import text_columns


def explain_image(lake: Lake, image_id: str, scope: Scope) -> Facts:
    """Return what the lake knows of an image, by the keys of its parts; a part is empty if unknown.

    Keys: ``origin, scores, rules, decision, group, cluster, matches, texts, quarantine, datasets``.
    """
    return lake.retrying(lambda: _explain(lake, image_id, scope))


def _explain(lake: Lake, image_id: str, scope: Scope) -> Facts:
    """Collect the parts of `explain_image` within one transaction."""
    origin = _origin(lake, image_id, scope)
    sha256 = origin["sha256"]
    in_home_shard = home_filter(lake, "image_content", "sha256", sha256)
    measured = scores(lake, scope, scope.tables("image"), "sha256", sha256, in_home_shard)
    checks = scope.plan.image_checks if scope.plan else ()
    group = _group(lake, sha256, scope)
    others = _other_images(lake, sha256, group, scope)
    decided = _decisions_of(lake, [image_id, *(row["image_id"] for row in others)])
    decision = _decision(decided[image_id], scope)
    return {
        "origin": origin,
        "scores": measured,
        "rules": evaluate_rules(lake, checks, scope.tables("image"), {**origin, **measured}),
        "decision": decision,
        "group": _group_members(lake, sha256, group, others, decided, scope),
        "cluster": _cluster(lake, sha256, scope, decision),
        "matches": _matches(lake, image_id, sha256, scope, decision),
        "texts": texts_of(lake, sha256, scope, in_home_shard),
        "quarantine": _quarantine_rows(lake, sha256, origin["url"], scope),
        "datasets": decided[image_id],
    }


def _origin(lake: Lake, image_id: str, scope: Scope) -> Facts:
    """Return the image's row, page, run and number of occurrences.

    Each comes from a single query: a join would scan all documents.
    """
    columns = 'image_id, sha256, url, position, alt_text, width, height, format, n_bytes, document_id, "commit"'
    rows = lake.rows(f"SELECT {columns} FROM images WHERE image_id = ?", (image_id,))
    found = max(rows, key=lambda row: row["commit"])
    page = rows_of_key(lake, scope, "documents", "uri AS document, title, source", "document_id", found["document_id"])
    run = 'SELECT run_id, "at" AS ingested FROM commits WHERE list_contains(?, "commit")'
    made = lake.rows(run, ([found.pop("commit")],))
    counting = f"document_id NOT IN {gone_documents()}"
    same = lake.rows(f"SELECT count(*) AS occurrences FROM images WHERE sha256 = ? AND {counting}", (found["sha256"],))
    found["superseded"] = superseded_at(lake, found["document_id"])
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
    rows = rows_of_key(lake, scope, "image_groups", "*", "sha256", sha256)
    if not rows:
        return {}
    newest = """SELECT max("commit") FROM image_groups WHERE "commit" <= ? AND (scorer = ? OR ?)"""
    asked = scope.upto, scope.scorers.get("image_groups", ""), scope.dataset is None
    last = lake.query(newest, asked)[0][0]
    return next((row for row in rows if row["commit"] == last), {})


def _other_images(lake: Lake, sha256: str, group: Facts, scope: Scope) -> list[Facts]:
    """Select the occurrences of the group's other images."""
    if not group:
        return []
    members = rows_of_key(lake, scope, "image_groups", 'sha256, scorer, "commit"', "group_id", group["group_id"])
    grouping = group["scorer"], group["commit"]
    same = [row["sha256"] for row in members if (row["scorer"], row["commit"]) == grouping]
    return _images_of(lake, [other for other in same if other != sha256])


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
    return {"group_id": group["group_id"], "pictures": group["group_size"], "others": shown[:MOST]}


def _images_of(lake: Lake, pictures: list[str]) -> list[Facts]:
    """Select the occurrences of images.

    Up to MOST images are selected one by one: `=` opens only the files that contain the image, `IN` reads all files.
    """
    if not pictures:
        return []
    keys = [quoted(sha256) for sha256 in pictures]
    wheres = [f"= {key}" for key in keys] if len(keys) <= MOST else [f"IN ({', '.join(keys)})"]
    each = "SELECT image_id, url, width, height, sha256 FROM images WHERE sha256"
    return lake.rows(" UNION ALL ".join(f"{each} {where}" for where in wheres))


def _distances(lake: Lake, sha256: str, scope: Scope) -> dict[str, str]:
    """Return kind and distance of every duplicate edge as text, by the sha256 of the other image."""
    if "duplicate_edges" not in scope.filled:
        return {}
    sql = """SELECT other, string_agg(DISTINCT said, ', ' ORDER BY said) FROM (SELECT if(a = ?, b, a) AS other,
        kind || ' distance ' || distance AS said FROM duplicate_edges WHERE a = ? OR b = ?) GROUP BY other"""
    return dict(lake.query(sql, (sha256, sha256, sha256)))


def _cluster(lake: Lake, sha256: str, scope: Scope, decision: Facts) -> Facts:
    """Return the cluster that balance caps, and the recipe's cap.

    If the cap decided on the image, also its rank among the survivors.
    """
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


def _matches(lake: Lake, image_id: str, sha256: str, scope: Scope, decision: Facts) -> list[Facts]:
    """Return the candidate sentences, most similar first.

    ``place``: the text's number in the pair, else None. ``given``: the text of the pair that represents the candidate,
    if the candidate is a duplicate of it.
    """
    scorer = scope.scorers.get("matches", "")
    most = 4 * scope.plan.recipe.association.top_k if scope.plan else MOST
    rows = rows_of_key(lake, scope, "match_candidates", 'content, similarity, scorer, "commit"', "sha256", sha256)
    rows = [row for row in rows if row["commit"] <= scope.upto and (not scorer or row["scorer"] == scorer)]
    newest = max(rows, key=lambda row: row["commit"])["scorer"] if rows else ""
    best: dict[str, float] = {}
    for row in rows:
        if row["scorer"] == newest:
            best[row["content"]] = max(row["similarity"], best.get(row["content"], row["similarity"]))
    found = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    text = _texts_of(lake, [content for content, _ in found])
    place = _text_numbers(lake, image_id, scope, decision)
    others = [content for content in text if text[content] not in place]
    given = representative_texts(lake, scope, others, place.keys() - set(text.values()))
    shown = [(content, text[content], similarity) for content, similarity in found if content in text]
    return [
        {"content": content, "text": said, "similarity": similarity, "place": place.get(given.get(content, said)),
         "given": given.get(content, "")}
        for content, said, similarity in shown
    ]  # fmt: skip


def _texts_of(lake: Lake, contents: list[str]) -> dict[str, str]:
    """Select texts by content id, with the ids as constants: a join would read every sentence of the lake."""
    keys = ", ".join(quoted(content) for content in contents)
    return dict(lake.query(f"SELECT content, text FROM sentence_content WHERE content IN ({keys})") if contents else ())


def _text_numbers(lake: Lake, image_id: str, scope: Scope, decision: Facts) -> dict[str, int]:
    """Return text -> rank, 1 to 5, of the sentences in the image's pair; {} if the image was dropped."""
    if scope.dataset is None or decision.get("dropped_by"):
        return {}
    of_dataset = f" AND {scope.dataset.where}"
    texts = ", ".join(text_columns.texts(scope.dataset.n_texts))
    rows = rows_of_key(lake, scope, "pairs", texts, "image_id", image_id, of_dataset)
    return {text: n for row in rows for n, text in enumerate(row.values(), 1)}


def _quarantine_rows(lake: Lake, sha256: str, url: str, scope: Scope) -> list[Facts]:
    """Select the quarantine rows of the image's bytes or address."""
    if "quarantine" not in scope.filled:
        return []
    return quarantine(lake, "item IN (?, ?) OR payload_ref = ?", (sha256, url, sha256))


def decisions(lake: Lake, image_id: str) -> list[Facts]:
    """Return the decisions of all dataset versions on the image, by name and version."""
    return _decisions_of(lake, [image_id])[image_id]


def _decisions_of(lake: Lake, image_ids: list[str]) -> dict[str, list[Facts]]:
    """Return decisions by image, in one query for all images.

    For two images at 10M images and five versions, this takes 0.07 s, two queries take 0.10.
    """
    keys = ", ".join(quoted(image_id) for image_id in image_ids)
    rows = lake.rows(f"SELECT item_id, dataset, version, dropped_by, value FROM decisions WHERE item_id IN ({keys})")
    found: dict[str, list[Facts]] = {image_id: [] for image_id in image_ids}
    for row in sorted(rows, key=lambda row: (row["dataset"], row["version"])):
        found[row.pop("item_id")].append(row)
    return found
