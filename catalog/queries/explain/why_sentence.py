"""Collect the lake's rows on one distinct sentence. Its decision is computed here, because no table stores it."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.superseded import gone_sentences
from pairmill.catalog.queries.datasets import published
from pairmill.catalog.queries.explain.why import MOST, Facts, Scope, evaluate_rules, home_filter, rows_of_key, scores
from pairmill.catalog.terms import text_columns


def explain_sentence(lake: Lake, content: str, scope: Scope) -> Facts:
    """Return everything that the lake knows of a distinct sentence, as a dictionary of its parts.

    Keys: ``origin, scores, rules, decision, group, cluster, candidate, used, datasets``. A part without rows is empty.
    """
    origin, measured, rules = _evaluated(lake, content, scope)
    fell = next((rule["rule"] for rule in rules if not rule["kept"]), "")
    group = members(lake, scope, content)
    keeper = _keeper(lake, group, scope) if group and scope.plan else {}
    decision = {"dataset": str(scope.dataset), "dropped_by": fell} if scope.dataset else {}
    if decision and not fell and keeper and keeper["content"] != content:
        decision |= {"dropped_by": "duplicate", "value": keeper["content"]}
    return {
        "origin": origin,
        "scores": measured,
        "rules": rules,
        "decision": decision,
        "group": {"sentences": len(group), "keeper": keeper} if group else {},
        "cluster": _cluster(lake, content, scope),
        "candidate": _candidate(lake, content, scope),
        "used": _pairs_with(lake, origin["text"], scope),
        "datasets": _versions(lake, origin["text"]),
    }


def _evaluated(lake: Lake, content: str, scope: Scope) -> tuple[Facts, Facts, list[Facts]]:
    """Return a sentence's origin, its scores, and the rules of the scope's plan evaluated on them."""
    origin, tables = _origin(lake, content), scope.tables("sentence")
    in_home_shard = home_filter(lake, "sentence_content", "content", content)
    measured = scores(lake, scope, tables, "content", content, in_home_shard)
    values = {"text": origin["text"], "repeats": origin["repeats"], **measured}
    return origin, measured, evaluate_rules(lake, scope.plan.sentence_checks if scope.plan else (), tables, values)


def _origin(lake: Lake, content: str) -> Facts:
    """Return the sentence's text, the number of its occurrences and the first MOST of them."""
    found = lake.rows("SELECT content, text FROM sentence_content WHERE content = ?", (content,))
    first = found or lake.rows("SELECT content, text FROM sentences WHERE content = ? LIMIT 1", (content,))
    repeats = lake.query("SELECT count(*) FROM sentences WHERE content = ?", (content,))[0][0]
    sql = f"""SELECT s.sentence_id, s.position, d.uri AS document, d.document_id, d.source FROM sentences s
        LEFT JOIN documents d ON d.document_id = s.document_id WHERE s.content = ?
        ORDER BY d.uri, s.position LIMIT {MOST}"""
    return {**first[0], "repeats": repeats, "occurrences": lake.rows(sql, (content,))}


def _keeper(lake: Lake, group: list[str], scope: Scope) -> Facts:
    """Return ``content`` and ``text`` of the first member that passes the rules and is in a current document, or {}."""
    keys = ", ".join(map(quoted, group))
    gone = {key for (key,) in lake.query(f"SELECT content FROM {gone_sentences(scope.upto)} WHERE content IN ({keys})")}
    for content in group:
        if content not in gone:
            origin, _, rules = _evaluated(lake, content, scope)
            if all(rule["kept"] for rule in rules):
                return {"content": content, "text": origin["text"]}
    return {}


def _cluster(lake: Lake, content: str, scope: Scope) -> Facts:
    """Return the newest cluster of the sentence in scope, {} for none."""
    sql = """SELECT cluster FROM clusters WHERE kind = 'sentence' AND key = ? AND "commit" <= ?
        AND (scorer = ? OR ?) ORDER BY "commit" DESC LIMIT 1"""
    scorer = scope.scorers.get("sentence_clusters", "")
    rows = lake.rows(sql, (content, scope.upto, scorer, scope.dataset is None))
    return rows[0] if rows else {}


def _candidate(lake: Lake, content: str, scope: Scope) -> Facts:
    """Return the number of images that the sentence is a candidate for, and the MOST similar of them."""
    scorer = scope.scorers.get("matches", "")
    where = "content = ? AND \"commit\" <= ? AND (scorer = ? OR ? = '')"
    sql = f"""SELECT i.image_id, m.sha256, i.url, m.similarity, count(*) OVER () AS pictures FROM (
        SELECT sha256, max(similarity) AS similarity FROM match_candidates WHERE {where} GROUP BY sha256) m
        JOIN (SELECT sha256, min(image_id) AS image_id, arg_min(url, image_id) AS url FROM images GROUP BY sha256) i
        ON i.sha256 = m.sha256 ORDER BY m.similarity DESC, i.image_id LIMIT {MOST}"""
    rows = lake.rows(sql, (content, scope.upto, scorer, scorer))
    pictures = rows[0]["pictures"] if rows else 0
    return {"pictures": pictures, "nearest": [{k: v for k, v in row.items() if k != "pictures"} for row in rows]}


def _pairs_with(lake: Lake, text: str, scope: Scope) -> list[Facts]:
    """Select the first MOST pairs of the dataset that contain the text; ``place`` is its column, 1 to 5."""
    if scope.dataset is None:
        return []
    texts = ", ".join(text_columns.texts(scope.dataset.n_texts))
    sql = f"""SELECT image_id, sha256, raw_image_url AS url, list_position([{texts}], ?) AS place FROM pairs
        WHERE dataset = ? AND version = ? AND ? IN ({texts}) ORDER BY image_id LIMIT {MOST}"""
    return lake.rows(sql, (text, scope.dataset.name, scope.dataset.version, text))


def _versions(lake: Lake, text: str) -> list[Facts]:
    """Count the pairs that contain the text, by dataset version."""
    most = max((each.n_texts for each in published(lake)), default=text_columns.RELEASED)
    sql = f"""SELECT dataset, version, count(*) AS pairs FROM pairs WHERE ? IN ({", ".join(text_columns.texts(most))})
        GROUP BY ALL ORDER BY ALL"""
    return lake.rows(sql, (text,))


def members(lake: Lake, scope: Scope, content: str) -> list[str]:
    """Return the contents of all sentences in the duplicate group of ``content``, sorted; [] if it is in no group."""
    grouping = _newest(lake, scope)
    rows = rows_of_key(lake, scope, "sentence_groups", "group_id", "content", content, grouping) if grouping else []
    found = [
        row["content"]
        for group in rows[:1]
        for row in rows_of_key(lake, scope, "sentence_groups", "content", "group_id", group["group_id"], grouping)
    ]
    return sorted(found)


def representative_texts(lake: Lake, scope: Scope, candidates: list[str], texts: set[str]) -> dict[str, str]:
    """Return candidate -> the member of ``texts`` that is in the candidate's duplicate group.

    The ids of the few groups are constants in the query: a join would read every sentence of the lake.
    """
    grouping = _newest(lake, scope)
    if not grouping or not candidates or not texts:
        return {}
    keys = ", ".join(map(quoted, candidates))
    of = dict(lake.query(f"SELECT content, group_id FROM sentence_groups WHERE content IN ({keys}){grouping}"))
    if not of:
        return {}
    ids = ", ".join(map(quoted, sorted(set(of.values()))))
    group_of = dict(lake.query(f"SELECT content, group_id FROM sentence_groups WHERE group_id IN ({ids}){grouping}"))
    keys = ", ".join(map(quoted, group_of))
    said = lake.query(f"SELECT content, text FROM sentence_content WHERE content IN ({keys})")
    given = {group_of[content]: text for content, text in said if text in texts}
    return {content: given[group] for content, group in of.items() if group in given}


def _newest(lake: Lake, scope: Scope) -> str:
    """Return SQL to append to a WHERE: the newest grouping of the dataset, or of the lake without one; '' for none."""
    if "sentence_groups" not in scope.filled:
        return ""
    mine = f" AND scorer = {quoted(scope.scorers.get('sentence_groups', ''))}" if scope.dataset else ""
    newest = 'SELECT scorer, "commit" FROM sentence_groups WHERE "commit" <= ?'
    found = lake.query(f'{newest}{mine} ORDER BY "commit" DESC LIMIT 1', (scope.upto,))
    return "".join(f' AND scorer = {quoted(scorer)} AND "commit" = {commit}' for scorer, commit in found)
