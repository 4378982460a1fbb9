"""Look up groups of duplicate sentences in the newest grouping in scope: members, and the text that represents each."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.explain.why import Scope, rows_of_key


def members(lake: Lake, scope: Scope, content: str) -> list[str]:
    """Return the sorted contents of the sentence's group, including its own; [] if it is in no group."""
    grouping = _newest(lake, scope)
    rows = rows_of_key(lake, scope, "sentence_groups", "group_id", "content", content, grouping) if grouping else []
    found = [
        row["content"]
        for group in rows[:1]
        for row in rows_of_key(lake, scope, "sentence_groups", "content", "group_id", group["group_id"], grouping)
    ]
    return sorted(found)


def representative_texts(lake: Lake, scope: Scope, candidates: list[str], texts: set[str]) -> dict[str, str]:
    """Return candidate -> the text among ``texts`` that is a member of the candidate's group.

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
