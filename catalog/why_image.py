"""All that is known of one image occurrence: where it came from, what was measured, why it stayed or fell."""

import re

from catalog.attach import quoted
from catalog.lake import Lake
from catalog.plan import IMAGE_TABLES
from catalog.why import MOST, Facts, Seen, facts, home, judged, quarantine, scores


def image(lake: Lake, image_id: str, seen: Seen) -> Facts:
    """Facts under the names ``origin, scores, rules, decision, group, cluster, matches, texts, quarantine, datasets``;
    an empty one where there is nothing to tell."""
    origin = _origin(lake, image_id)
    sha256 = origin["sha256"]
    at_home = home(lake, "image_content", "sha256", sha256)
    measured = scores(lake, seen, IMAGE_TABLES, "sha256", sha256, at_home)
    checks = seen.plan.image_checks if seen.plan else ()
    decision = _decision(lake, image_id, seen)
    return {
        "origin": origin,
        "scores": measured,
        "rules": judged(lake, checks, IMAGE_TABLES, {**origin, **measured}),
        "decision": decision,
        "group": _group(lake, sha256, seen),
        "cluster": _cluster(lake, sha256, seen, decision),
        "matches": _matches(lake, image_id, sha256, seen),
        "texts": _texts(lake, sha256, seen, at_home),
        "quarantine": quarantine(lake, "item IN (?, ?) OR payload_ref = ?", (sha256, origin["url"], sha256)),
        "datasets": versions(lake, image_id),
    }


def _origin(lake: Lake, image_id: str) -> Facts:
    """One question after the other, each with a constant: a join would read the column of every document."""
    sql = """SELECT image_id, sha256, url, position, alt_text, width, height, format, n_bytes, document_id, "commit"
        FROM images WHERE image_id = ? ORDER BY "commit" DESC LIMIT 1"""
    found = facts(lake, sql, (image_id,))[0]
    page = "SELECT uri AS document, title, source FROM documents WHERE document_id = ? LIMIT 1"
    made = 'SELECT run_id, "at" AS ingested FROM commits WHERE "commit" = ?'
    count = "SELECT count(*) AS occurrences FROM images WHERE sha256 = ?"
    absent = dict.fromkeys(("document", "title", "source", "run_id", "ingested"))
    known = [(page, found["document_id"]), (made, found.pop("commit")), (count, found["sha256"])]
    return found | absent | {name: value for sql, key in known for row in facts(lake, sql, (key,))
                             for name, value in row.items()}  # fmt: skip


def _decision(lake: Lake, image_id: str, seen: Seen) -> Facts:
    if seen.dataset is None:
        return {}
    sql = "SELECT dropped_by, value FROM decisions WHERE dataset = ? AND version = ? AND item_id = ? AND kind = 'image'"
    rows = facts(lake, sql, (seen.dataset.name, seen.dataset.version, image_id))
    return {"dataset": str(seen.dataset), **rows[0]} if rows else {}


def _group(lake: Lake, sha256: str, seen: Seen) -> Facts:
    """The duplicate group: how near its members are, and which of them the dataset keeps."""
    scorer = seen.scorers.get("image_groups", "")
    newest = """SELECT * FROM image_groups WHERE "commit" = (SELECT max("commit") FROM image_groups
        WHERE "commit" <= ? AND (scorer = ? OR ?)) AND sha256 = ?"""
    rows = facts(lake, newest, (seen.upto, scorer, seen.dataset is None, sha256))
    if not rows:
        return {}
    group = rows[0]
    name, version = (seen.dataset.name, seen.dataset.version) if seen.dataset else ("", 0)
    members = facts(
        lake,
        f"""SELECT i.image_id, i.url, i.width, i.height, d.dropped_by, e.near FROM image_groups g
        JOIN images i ON i.sha256 = g.sha256
        LEFT JOIN decisions d ON d.dataset = ? AND d.version = ? AND d.item_id = i.image_id
        LEFT JOIN (SELECT if(a = ?, b, a) AS other, string_agg(DISTINCT kind || ' distance ' || distance, ', ') AS near
            FROM duplicate_edges WHERE a = ? OR b = ? GROUP BY ALL) e ON e.other = g.sha256
        WHERE g.group_id = ? AND g.scorer = ? AND g."commit" = ? AND i.sha256 <> ?
        ORDER BY d.dropped_by = '' DESC, i.image_id LIMIT {MOST}""",
        (name, version, sha256, sha256, sha256, group["group_id"], group["scorer"], group["commit"], sha256),
    )
    return {"group_id": group["group_id"], "pictures": group["group_size"], "others": members}


def _cluster(lake: Lake, sha256: str, seen: Seen, decision: Facts) -> Facts:
    """The image cluster, and where the cap saw it the place among the survivors by which it decided."""
    cap = {"cap": seen.plan.recipe.balance.cap} if seen.plan else {}
    if at := re.fullmatch(r"cluster=(\d+) place=(\d+) of (\d+)", decision.get("value") or ""):
        return {"cluster": int(at[1]), "rank": int(at[2]), "survivors": int(at[3]), **cap}
    scorer = seen.scorers.get("image_clusters", "")
    sql = """SELECT c.cluster FROM clusters c WHERE c.kind = 'image' AND c.key = ? AND c."commit" <= ?
        AND c.scorer IN (SELECT digest FROM scorers WHERE name = 'image_clusters') AND (c.scorer = ? OR ?)
        ORDER BY c."commit" DESC LIMIT 1"""
    rows = facts(lake, sql, (sha256, seen.upto, scorer, seen.dataset is None))
    return {**rows[0], **cap} if rows else {}


def _matches(lake: Lake, image_id: str, sha256: str, seen: Seen) -> list[Facts]:
    """The candidates by similarity; ``place`` is the text's number in the pair."""
    scorer = seen.scorers.get("matches", "")
    key = (seen.dataset.name, seen.dataset.version) if seen.dataset else ("", 0)
    most = 4 * seen.plan.recipe.association.top_k if seen.plan else MOST
    found = lake.query(
        """SELECT content, max(similarity) FROM (SELECT *, arg_max(scorer, "commit") OVER () AS newest
            FROM match_candidates WHERE sha256 = ? AND "commit" <= ? AND (scorer = ? OR ? = ''))
        WHERE scorer = newest GROUP BY content ORDER BY 2 DESC, 1""",
        (sha256, seen.upto, scorer, scorer),
    )[:most]
    used = lake.query(
        "SELECT text1, text2, text3 FROM pairs WHERE dataset = ? AND version = ? AND image_id = ?", (*key, image_id)
    )
    place = {text: n for row in used for n, text in enumerate(row, 1)}
    text = _texts_of(lake, [content for content, _ in found])
    return [
        {"content": content, "text": text[content], "similarity": similarity, "place": place.get(text[content])}
        for content, similarity in found
        if content in text
    ]


def _texts_of(lake: Lake, contents: list[str]) -> dict[str, str]:
    """By constants, which are looked up in the order of the file; a join would read every sentence of the lake."""
    keys = ", ".join(quoted(content) for content in contents)
    return dict(lake.query(f"SELECT content, text FROM sentence_content WHERE content IN ({keys})") if contents else ())


def _texts(lake: Lake, sha256: str, seen: Seen, at_home: str) -> list[Facts]:
    """Captions of every captioner, tags and fused texts, oldest first; ``current`` are those of the dataset."""
    known = sorted(set(seen.scorers.values()))
    key = f"WHERE sha256 = ?{at_home}"
    sql = f"""SELECT kind, "by", text, status, list_contains(?, scorer) AS current, "commit" FROM (
        SELECT 'caption' AS kind, captioner AS "by", text, status, scorer, "commit" FROM captions {key}
        UNION ALL SELECT 'tags', '', array_to_string(tags, ', '), 'ok', scorer, "commit" FROM tags {key}
        UNION ALL SELECT 'synthetic', '', synthetic_text, synthetic_status, scorer, "commit" FROM synthetic {key})
        ORDER BY "commit", kind"""
    return facts(lake, sql, (known, sha256, sha256, sha256))


def versions(lake: Lake, image_id: str) -> list[Facts]:
    """What became of the image in every dataset version that knew it."""
    sql = """SELECT dataset, version, dropped_by, value FROM decisions WHERE item_id = ? AND kind = 'image'
        ORDER BY dataset, version"""
    return facts(lake, sql, (image_id,))
