"""Write SQL for the decision on every sentence by every version: no table stores it, but rules and scores give it."""

from collections.abc import Sequence

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import AFTER_ALL, sentence_rows
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.plan import Plan

_NOTHING = (
    "SELECT '' AS dataset, 0::INTEGER AS version, '' AS item_id, '' AS kind, '' AS dropped_by, '' AS value, "
    "'' AS text WHERE false"
)


def sentence_decisions(lake: Lake, versions: Sequence[Dataset]) -> str:
    """Return a SELECT with the columns of ``decisions`` and the text, one row per version and distinct sentence.

    ``dropped_by`` is '' for a sentence that may be assigned, the first rule that it fails, or 'duplicate' with the
    kept sentence's id as ``value``. A filter on dataset and version leaves the other versions unread.

    Raises:
        PairmillError: A version's recipe needs a package that is not installed.
    """
    return " UNION ALL ".join([_of_version(plan_of(lake, each), each) for each in versions] or [_NOTHING])


def _of_version(plan: Plan, version: Dataset) -> str:
    """Return SQL for one version. The first passing member of a group of near copies stands for the others."""
    scorer = plan.scorer("sentence_groups")
    newest = f"scorer = {quoted(scorer)} AND commit <= {version.commit}"
    groups = (
        f"SELECT content, group_id FROM sentence_groups WHERE {newest} AND commit = "
        f"(SELECT max(commit) FROM sentence_groups WHERE {newest})"
    )
    first = "min(content) FILTER (dropped_by = '') OVER (PARTITION BY coalesce(group_id, content))"
    copy = "dropped_by = '' AND keeper <> content"
    return (
        f"SELECT {quoted(version.name)} AS dataset, {version.version}::INTEGER AS version, content AS item_id, "
        f"'sentence' AS kind, if({copy}, 'duplicate', dropped_by) AS dropped_by, "
        f"if({copy}, keeper, dropped_value) AS value, text FROM (SELECT *, {first} AS keeper FROM "
        f"({sentence_rows(plan, AFTER_ALL, version.commit)}) LEFT JOIN ({groups}) USING (content))"
    )
