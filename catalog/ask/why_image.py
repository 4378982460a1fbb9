"""All that is known of one image occurrence: where it came from, what was measured, why it stayed or fell."""

import re

from catalog.ask.why import MOST, Facts, Seen, facts, home, judged, known, quarantine, scores, superseded
from catalog.lake.attach import quoted
from catalog.lake.lake import Lake
from catalog.pending.superseded import gone


def image(lake: Lake, image_id: str, seen: Seen) -> Facts:
    """Facts under the names ``origin, scores, rules, decision, group, cluster, matches, texts, quarantine, datasets``;
    an empty one where there is nothing to tell."""
    return lake.retrying(lambda: _image(lake, image_id, seen))


def _image(lake: Lake, image_id: str, seen: Seen) -> Facts:
    origin = _origin(lake, image_id, seen)
    sha256 = origin["sha256"]
    at_home = home(lake, "image_content", "sha256", sha256)
    measured = scores(lake, seen, seen.tables("image"), "sha256", sha256, at_home)
    checks = seen.plan.image_checks if seen.plan else ()
    group = _group(lake, sha256, seen)
    others = _others(lake, sha256, group, seen)
    decided = _decided(lake, [image_id, *(row["image_id"] for row in others)])
    decision = _decision(decided[image_id], seen)
    return {
        "origin": origin,
        "scores": measured,
        "rules": judged(lake, checks, seen.tables("image"), {**origin, **measured}),
        "decision": decision,
        "group": _told(lake, sha256, group, others, decided, seen),
        "cluster": _cluster(lake, sha256, seen, decision),
        "matches": _matches(lake, image_id, sha256, seen, decision),
        "texts": _texts(lake, sha256, seen, at_home),
        "quarantine": _faults(lake, sha256, origin["url"], seen),
        "datasets": decided[image_id],
    }


def _origin(lake: Lake, image_id: str, seen: Seen) -> Facts:
    """One question after the other, each with a constant: a join would read the column of every document."""
    columns = 'image_id, sha256, url, position, alt_text, width, height, format, n_bytes, document_id, "commit"'
    rows = facts(lake, f"SELECT {columns} FROM images WHERE image_id = ?", (image_id,))
    found = max(rows, key=lambda row: row["commit"])
    page = known(lake, seen, "documents", "uri AS document, title, source", "document_id", found["document_id"])
    run = 'SELECT run_id, "at" AS ingested FROM commits WHERE list_contains(?, "commit")'
    made = facts(lake, run, ([found.pop("commit")],))
    counting = f"document_id NOT IN {gone()}"
    same = facts(
        lake, f"SELECT count(*) AS occurrences FROM images WHERE sha256 = ? AND {counting}", (found["sha256"],)
    )
    found["superseded"] = superseded(lake, found["document_id"])
    absent = dict.fromkeys(("document", "title", "source", "run_id", "ingested"))
    return found | absent | {name: value for rows in (page, made, same) for row in rows[:1]
                             for name, value in row.items()}  # fmt: skip


def _decision(decided: list[Facts], seen: Seen) -> Facts:
    for row in decided:
        if seen.dataset and (row["dataset"], row["version"]) == (seen.dataset.name, seen.dataset.version):
            return {"dataset": str(seen.dataset), "dropped_by": row["dropped_by"], "value": row["value"]}
    return {}


def _group(lake: Lake, sha256: str, seen: Seen) -> Facts:
    """The picture's row of the newest grouping, where there is one."""
    rows = known(lake, seen, "image_groups", "*", "sha256", sha256)
    if not rows:
        return {}
    newest = """SELECT max("commit") FROM image_groups WHERE "commit" <= ? AND (scorer = ? OR ?)"""
    asked = seen.upto, seen.scorers.get("image_groups", ""), seen.dataset is None
    last = lake.query(newest, asked)[0][0]
    return next((row for row in rows if row["commit"] == last), {})


def _others(lake: Lake, sha256: str, group: Facts, seen: Seen) -> list[Facts]:
    """The images of the other pictures of the group."""
    if not group:
        return []
    members = known(lake, seen, "image_groups", 'sha256, scorer, "commit"', "group_id", group["group_id"])
    grouping = group["scorer"], group["commit"]
    same = [row["sha256"] for row in members if (row["scorer"], row["commit"]) == grouping]
    return _images_of(lake, [other for other in same if other != sha256])


def _told(
    lake: Lake, sha256: str, group: Facts, others: list[Facts], decided: dict[str, list[Facts]], seen: Seen
) -> Facts:
    """The duplicate group: how near its members are, and which of them the dataset keeps, those first."""
    if not group:
        return {}
    near = _near(lake, sha256, seen)
    told = [
        {"dropped_by": _decision(decided[row["image_id"]], seen).get("dropped_by"),
         "near": near.get(row.pop("sha256")), **row}
        for row in others
    ]  # fmt: skip
    order = {"": 0, None: 2}
    told.sort(key=lambda row: (order.get(row["dropped_by"], 1), row["image_id"]))
    return {"group_id": group["group_id"], "pictures": group["group_size"], "others": told[:MOST]}


def _images_of(lake: Lake, pictures: list[str]) -> list[Facts]:
    """Of a few one by one: `=` opens the files that hold a picture, `IN` reads the column of every file."""
    if not pictures:
        return []
    keys = [quoted(sha256) for sha256 in pictures]
    wheres = [f"= {key}" for key in keys] if len(keys) <= MOST else [f"IN ({', '.join(keys)})"]
    each = "SELECT image_id, url, width, height, sha256 FROM images WHERE sha256"
    return facts(lake, " UNION ALL ".join(f"{each} {where}" for where in wheres))


def _near(lake: Lake, sha256: str, seen: Seen) -> dict[str, str]:
    """How near other pictures are, as far as they were compared."""
    if "duplicate_edges" not in seen.filled:
        return {}
    sql = """SELECT if(a = ?, b, a), string_agg(DISTINCT kind || ' distance ' || distance, ', ') FROM duplicate_edges
        WHERE a = ? OR b = ? GROUP BY ALL"""
    return dict(lake.query(sql, (sha256, sha256, sha256)))


def _cluster(lake: Lake, sha256: str, seen: Seen, decision: Facts) -> Facts:
    """The image cluster, and where the cap saw it the place among the survivors by which it decided."""
    cap = {"cap": seen.plan.recipe.balance.cap} if seen.plan else {}
    if at := re.fullmatch(r"cluster=(\d+) place=(\d+) of (\d+)", decision.get("value") or ""):
        return {"cluster": int(at[1]), "rank": int(at[2]), "survivors": int(at[3]), **cap}
    rows = known(lake, seen, "clusters", 'cluster, scorer, "commit"', "key", sha256)
    if seen.dataset is None:  # else its scorer tells them from the images' routes to sentences
        by = {digest for (digest,) in lake.query("SELECT digest FROM scorers WHERE name = 'image_clusters'")}
        rows = [row for row in rows if row["scorer"] in by]
    found = seen.newest(rows, seen.scorers.get("image_clusters", ""))
    return {"cluster": found["cluster"], **cap} if found else {}


def _matches(lake: Lake, image_id: str, sha256: str, seen: Seen, decision: Facts) -> list[Facts]:
    """The candidates by similarity; ``place`` is the text's number in the pair."""
    scorer = seen.scorers.get("matches", "")
    most = 4 * seen.plan.recipe.association.top_k if seen.plan else MOST
    rows = known(lake, seen, "match_candidates", 'content, similarity, scorer, "commit"', "sha256", sha256)
    rows = [row for row in rows if row["commit"] <= seen.upto and (not scorer or row["scorer"] == scorer)]
    newest = max(rows, key=lambda row: row["commit"])["scorer"] if rows else ""
    best: dict[str, float] = {}
    for row in rows:
        if row["scorer"] == newest:
            best[row["content"]] = max(row["similarity"], best.get(row["content"], row["similarity"]))
    found = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:most]
    text = _texts_of(lake, [content for content, _ in found])
    place = _places(lake, image_id, seen, decision)
    return [
        {"content": content, "text": text[content], "similarity": similarity, "place": place.get(text[content])}
        for content, similarity in found
        if content in text
    ]


def _texts_of(lake: Lake, contents: list[str]) -> dict[str, str]:
    """By constants, which are looked up in the order of the file; a join would read every sentence of the lake."""
    keys = ", ".join(quoted(content) for content in contents)
    return dict(lake.query(f"SELECT content, text FROM sentence_content WHERE content IN ({keys})") if contents else ())


def _places(lake: Lake, image_id: str, seen: Seen, decision: Facts) -> dict[str, int]:
    """The texts of the image's pair, which only a kept image has, by their numbers."""
    if seen.dataset is None or decision.get("dropped_by"):
        return {}
    of_dataset = f" AND dataset = {quoted(seen.dataset.name)} AND version = {seen.dataset.version}"
    rows = known(lake, seen, "pairs", "text1, text2, text3", "image_id", image_id, of_dataset)
    return {text: n for row in rows for n, text in enumerate(row.values(), 1)}


_TEXTS = {
    "captions": "'caption' AS kind, captioner AS \"by\", text, status",
    "tags": "'tags' AS kind, '' AS \"by\", array_to_string(tags, ', ') AS text, 'ok' AS status",
    "synthetic": "'synthetic' AS kind, '' AS \"by\", synthetic_text AS text, synthetic_status AS status",
}


def _texts(lake: Lake, sha256: str, seen: Seen, at_home: str) -> list[Facts]:
    """Captions of every captioner, tags and fused texts, oldest first; ``current`` are those of the dataset."""
    current = set(seen.scorers.values())
    found = [
        {"current": row.pop("scorer") in current, **row}
        for table, columns in _TEXTS.items()
        for row in known(lake, seen, table, f'{columns}, scorer, "commit"', "sha256", sha256, at_home)
    ]
    return sorted(found, key=lambda row: (row["commit"], row["kind"]))


def _faults(lake: Lake, sha256: str, url: str, seen: Seen) -> list[Facts]:
    if "quarantine" not in seen.filled:
        return []
    return quarantine(lake, "item IN (?, ?) OR payload_ref = ?", (sha256, url, sha256))


def versions(lake: Lake, image_id: str) -> list[Facts]:
    """What became of the image in every dataset version that knew it."""
    return _decided(lake, [image_id])[image_id]


def _decided(lake: Lake, image_ids: list[str]) -> dict[str, list[Facts]]:
    """The same of several by one question: two take 0.07 s at 10M images and five versions, asked singly 0.10."""
    keys = ", ".join(quoted(image_id) for image_id in image_ids)
    rows = facts(lake, f"SELECT item_id, dataset, version, dropped_by, value FROM decisions WHERE item_id IN ({keys})")
    found: dict[str, list[Facts]] = {image_id: [] for image_id in image_ids}
    for row in sorted(rows, key=lambda row: (row["dataset"], row["version"])):
        found[row.pop("item_id")].append(row)
    return found
