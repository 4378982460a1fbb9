"""Compare any two dataset versions: pairs gained, lost and changed by cause and group, and drift of values.

Only pairs count: an image that both versions dropped, by whatever rule, is not a change.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset, published
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms import text_columns

if TYPE_CHECKING:
    import pyarrow as pa

EDITED = " (edited)"  # follows a column's name in a `Difference.cause`
LARGEST = 8  # groups of each kind, those with the most gained and lost pairs
# Cause of a pair gained or lost: the ``why`` of its `Difference`, for causes that are no rule of the recipe.
_WHY = {"new": "source", "gone": "source", "duplicate": "duplicate", "exact_duplicate": "duplicate",
        "balance": "balance", "no_text": "texts", "max_uses": "texts", "same_text": "texts",
        "left_out": "act"}  # fmt: skip
_DOMAIN = "regexp_extract(coalesce(raw_image_url, ''), '^[a-zA-Z][a-zA-Z0-9+.-]*://(?:[^/?#@]*@)?([^/?#]*)', 1)"
_LANGUAGE = "json_extract_string(try_cast(metadata AS JSON), '$.language')"
# Group: SQL over the columns of ``diff_met``.
GROUPS = {"source": "source", "domain": "domain", "language": "language", "cluster": "CAST(cluster AS VARCHAR)"}
MEASURES = {
    "text1 characters": "length(text1)", "caption characters": "length(caption)",
    "syn_text characters": "length(syn_text)", "similarity1": "similarity1", "best_similarity": "best_similarity",
    "caption_similarity": "caption_similarity", "synthetic_similarity": "synthetic_similarity",
}  # fmt: skip


@dataclass(frozen=True)
class Difference:
    """``n`` pairs of one ``kind`` with one ``cause``, and some images of them.

    Attributes:
        kind: 'gained', 'lost' or 'changed'.
        cause: For gained pairs, the rule by which the earlier version dropped the image, or 'new' if it lacked the
            image. For lost pairs, the rule by which the later version drops it, or 'gone' if it lacks the image. For
            changed pairs, the columns with other values, as in 'text1, caption (edited)': '(edited)' marks a column
            that an edit changed in one of the versions.
        why: 'rule' if the predicate of the rule ``cause`` differs between the recipes; 'score' if it is the same, so a
            value changed; 'source' for images that only one version has; 'duplicate', 'balance', 'texts' for these
            steps; 'act' for pictures that people leave out; 'edit' for pairs in both versions whose differing columns
            are all edited, else 'values'.
        n: Number of pairs.
        images: Examples, those with the smallest ids: image_id, sha256 and shard.
    """

    kind: str
    cause: str
    why: str
    n: int
    images: tuple[dict[str, Any], ...] = ()


@dataclass(frozen=True)
class GroupCount:
    """Pairs gained and lost within one value of a group ('source', 'domain', 'language', 'cluster')."""

    group: str
    value: str
    gained: int
    lost: int


@dataclass(frozen=True)
class Spread:
    """Number, mean and quantiles of a value over the pairs that have it; None for the statistics if no pair has it."""

    n: int
    mean: float | None
    p10: float | None
    p50: float | None
    p90: float | None


@dataclass(frozen=True)
class Drift:
    """Distribution of one measure (a similarity, a length in words) over the pairs of either version."""

    measure: str
    before: Spread
    after: Spread


@dataclass(frozen=True)
class VersionDiff:
    """What differs between two versions of a dataset, named ``before`` and ``after`` (NAME@VERSION).

    ``gained`` are pairs that only the later version has, ``lost`` those that only the earlier one has, ``changed``
    pairs of both whose texts, scores or other columns differ. ``causes``: counts by kind and cause, largest first
    within a kind. ``groups``: for each kind of group, the LARGEST values by gained and lost pairs. ``drift``: spreads
    of lengths and similarities; measures without a value in both versions are left out.
    """

    before: str
    after: str
    pairs_before: int
    pairs_after: int
    gained: int
    lost: int
    changed: int
    causes: tuple[Difference, ...]
    groups: tuple[GroupCount, ...]
    drift: tuple[Drift, ...]


def version_before(lake: Lake, dataset: Dataset) -> Dataset | None:
    """Return the newest version of the same dataset that is older and still published; None if there is none."""
    older = [each for each in published(lake) if each.name == dataset.name and each.version < dataset.version]
    return older[-1] if older else None


def version_diff(lake: Lake, before: Dataset, after: Dataset, images: int = 0) -> VersionDiff:
    """Compare the pairs of two versions, of one dataset or of two. 1M pairs each take some 4 s.

    Each cause has up to ``images`` example images.
    """
    lake.execute(f"CREATE OR REPLACE TEMP TABLE diff_pairs AS {_differing_images(before, after)}")
    causes = differences(lake, before, after, images, pairs="diff_pairs")
    of_kind = {kind: sum(each.n for each in causes if each.kind == kind) for kind in ("gained", "lost", "changed")}
    groups = _groups(lake, before, after) if of_kind["gained"] or of_kind["lost"] else ()
    lake.execute("DROP TABLE diff_pairs")
    was, now = (_spreads(lake, each) for each in (before, after))
    drift = tuple(Drift(name, was[name], now[name]) for name in MEASURES if was[name].n or now[name].n)
    n_pairs = before.n_pairs, after.n_pairs
    return VersionDiff(str(before), str(after), *n_pairs, **of_kind, causes=causes, groups=groups, drift=drift)


def differences(
    lake: Lake, before: Dataset, after: Dataset, images: int, most: int = 2**31, pairs: str = ""
) -> tuple[Difference, ...]:
    """Count the pairs that differ between two versions by kind and cause, each with up to ``images`` example images.

    Returns the ``most`` largest counts, sorted by kind (gained, lost, changed), then count, largest first. ``pairs``
    names a table of differing pairs; without it the pairs of both versions are joined, which spills 20 GB at 30M pairs.
    """
    rows, ids = pairs or f"({_differing_images(before, after)})", f"min(item_id, {images})" if images else "[]"
    found = lake.query(f"""SELECT * FROM (SELECT kind, cause, count(*) AS n, {ids} AS ids FROM {rows} GROUP BY kind,
        cause ORDER BY n DESC, kind, cause LIMIT {most}) ORDER BY list_position(['gained', 'lost', 'changed'], kind),
        n DESC, cause""")
    shown = _images(lake, [image_id for row in found for image_id in row[3]])
    was, now = (
        {rule.name: rule.predicate for rule in Recipe.model_validate_json(each.recipe).images}
        for each in (before, after)
    )
    differing = []
    for kind, cause, n, ids in found:
        of_rule = "rule" if was.get(cause) != now.get(cause) else "score"
        if kind == "changed":
            why = "edit" if all(column.endswith(EDITED) for column in cause.split(", ")) else "values"
        else:
            why = _WHY.get(cause, of_rule)
        differing.append(Difference(kind, cause, why, n, tuple(shown[each] for each in ids if each in shown)))
    return tuple(differing)


def changed_ids(lake: Lake, before: Dataset, after: Dataset, kind: str, cause: str) -> "pa.Table":
    """Return the column ``image_id`` of all images whose pairs differ by this ``kind`` and ``cause`` (`Difference`)."""
    of_cause = f"kind = {quoted(kind)} AND cause = {quoted(cause)}"
    return lake.table(f"SELECT item_id AS image_id FROM ({_differing_images(before, after)}) WHERE {of_cause}")


def _images(lake: Lake, image_ids: list[str]) -> dict[str, dict[str, Any]]:
    """Return image_id, sha256 and shard of images, by id."""
    if not image_ids:
        return {}
    among = ", ".join(map(quoted, image_ids))
    rows = lake.rows(f"""SELECT image_id, any_value(sha256) AS sha256, any_value(c.shard) AS shard FROM (SELECT *
        FROM images WHERE image_id IN ({among})) JOIN image_content c USING (sha256) GROUP BY image_id""")
    return {row["image_id"]: row for row in rows}


def _differing_images(before: Dataset, after: Dataset) -> str:
    """Return SQL for ``item_id``, ``kind`` and ``cause`` (see `Difference`) of every image whose pair differs."""
    n = max(before.n_texts, after.n_texts)
    compared = (
        "raw_image_url", *text_columns.texts(n), "syn_text", "caption", "alt_text", "tags", "width", "height",
        *text_columns.similarities(n), "best_similarity", "cluster",
        *(name for name in before.optional_columns if name in after.optional_columns),
    )  # fmt: skip
    texts = text_columns.of_every_kind(n)
    said = {name: f"if(list_contains(fields, '{name}'), '{name}{EDITED}', '{name}')" for name in texts}
    differing = ", ".join(
        f"CASE WHEN a.{name} IS DISTINCT FROM b.{name} THEN {said.get(name, quoted(name))} END" for name in compared
    )
    edits = f"""SELECT image_id, list(DISTINCT field) AS fields FROM edited_texts WHERE {before.where} OR {after.where}
        GROUP BY image_id"""
    return f"""WITH met AS MATERIALIZED (
        SELECT coalesce(a.image_id, b.image_id) AS item_id, if(a.image_id IS NULL, 'gained',
            if(b.image_id IS NULL, 'lost', 'changed')) AS kind, concat_ws(', ', {differing}) AS columns
        FROM (SELECT * FROM pairs WHERE {before.where}) a
            FULL JOIN (SELECT * FROM pairs WHERE {after.where}) b
        ON a.image_id = b.image_id LEFT JOIN ({edits}) e ON e.image_id = a.image_id)
    SELECT item_id, kind, columns AS cause FROM met WHERE kind = 'changed' AND columns <> ''
    UNION ALL {_with_cause("gained", before, "new")} UNION ALL {_with_cause("lost", after, "gone")}"""


def _with_cause(kind: str, other: Dataset, unknown: str) -> str:
    """Return SQL for the pairs that only one version has, with the rule by which the ``other`` version dropped them."""
    alone = f"SELECT item_id FROM met WHERE kind = '{kind}'"
    of_other = f"{other.where} AND kind = 'image' AND item_id IN ({alone})"
    said = f"SELECT item_id, dropped_by FROM decisions WHERE {of_other}"
    return f"""SELECT m.item_id, m.kind, coalesce(nullif(d.dropped_by, ''), '{unknown}') FROM met m LEFT JOIN ({said}) d
        ON d.item_id = m.item_id WHERE m.kind = '{kind}'"""


def _groups(lake: Lake, before: Dataset, after: Dataset) -> tuple[GroupCount, ...]:
    """Count gained and lost pairs by source, domain, language and cluster; return the LARGEST counts of each."""
    columns = f"image_id AS item_id, document_id, cluster, {_DOMAIN} AS domain"
    sides = " UNION ALL ".join(
        f"(SELECT kind, {columns} FROM pairs p JOIN diff_pairs d ON d.item_id = p.image_id AND d.kind = '{kind}' "
        f"WHERE {of.where})"
        for kind, of in (("gained", after), ("lost", before))
    )
    documents = f"""SELECT document_id, any_value(source) AS source, any_value({_LANGUAGE}) AS said FROM documents
        WHERE document_id IN (SELECT document_id FROM diff_sides) GROUP BY document_id"""
    languages = """SELECT document_id, mode(language) AS guessed FROM sentences JOIN sentence_quality USING (content)
        WHERE document_id IN (SELECT document_id FROM diff_sides) GROUP BY document_id"""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE diff_sides AS {sides}")
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE diff_met AS SELECT s.*, source, coalesce(said, guessed) AS language
        FROM diff_sides s LEFT JOIN ({documents}) USING (document_id) LEFT JOIN ({languages}) USING (document_id)""")
    found: list[GroupCount] = []
    for group, value in GROUPS.items():
        counts = f"""SELECT coalesce({value}, '') AS value, count(*) FILTER (kind = 'gained') AS gained,
            count(*) FILTER (kind = 'lost') AS lost FROM diff_met GROUP BY ALL"""
        rows = lake.query(f"SELECT * FROM ({counts}) ORDER BY gained + lost DESC, value LIMIT {LARGEST}")
        found += [GroupCount(group, *row) for row in rows if row[0]]
    lake.execute("DROP TABLE diff_met; DROP TABLE diff_sides")
    return tuple(found)


def _spreads(lake: Lake, dataset: Dataset) -> dict[str, Spread]:
    """Return the spread of each measure over the pairs of a version, in one scan."""
    parts = ", ".join(
        f"count({sql}), avg({sql}), quantile_cont(CAST({sql} AS DOUBLE), [0.1, 0.5, 0.9])" for sql in MEASURES.values()
    )
    row = lake.query(f"SELECT {parts} FROM pairs WHERE {dataset.where}")[0]
    return {
        name: Spread(row[3 * n], row[3 * n + 1], *(row[3 * n + 2] or (None, None, None)))
        for n, name in enumerate(MEASURES)
    }
