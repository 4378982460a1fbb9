"""Compare any two dataset versions in figures: pairs gained and lost, by cause and by group, and drift of values."""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.compare.changes import changed
from pairmill.catalog.queries.compare.version_difference import reasons
from pairmill.catalog.queries.datasets import Dataset

LARGEST = 8  # groups of each kind, those with the most gained and lost pairs
_KINDS = {"entered": "gained", "left": "lost", "changed": "changed"}
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
class CauseCount:
    """``n`` pairs of one ``kind`` ('gained', 'lost', 'changed') with one cause; see `version_difference.Difference`."""

    kind: str
    cause: str
    why: str
    n: int


@dataclass(frozen=True)
class GroupCount:
    """Pairs gained and lost within one value of a group ('source', 'domain', 'language', 'cluster')."""

    group: str
    value: str
    gained: int
    lost: int


@dataclass(frozen=True)
class Spread:
    """Spread of a value over the pairs that have it: their number, mean and quantiles; None where no pair has it."""

    n: int
    mean: float | None
    p10: float | None
    p50: float | None
    p90: float | None


@dataclass(frozen=True)
class Drift:
    """The spread of one measure over the pairs of both versions."""

    measure: str
    before: Spread
    after: Spread


@dataclass(frozen=True)
class VersionDiff:
    """The difference of two versions.

    Attributes:
        before: Name of the earlier version, as NAME@VERSION.
        after: Name of the later one.
        pairs_before: Pairs of the earlier version.
        pairs_after: Pairs of the later one.
        gained: Pairs that only the later version has.
        lost: Pairs that only the earlier one has.
        changed: Pairs of both whose texts, scores or other columns differ.
        causes: Counts by kind and cause, largest first within a kind.
        groups: The LARGEST groups of each kind by gained and lost pairs.
        drift: Spreads of lengths and similarities; measures without a value in both versions are left out.
    """

    before: str
    after: str
    pairs_before: int
    pairs_after: int
    gained: int
    lost: int
    changed: int
    causes: tuple[CauseCount, ...]
    groups: tuple[GroupCount, ...]
    drift: tuple[Drift, ...]


def version_diff(lake: Lake, before: Dataset, after: Dataset) -> VersionDiff:
    """Compare the pairs of two versions, which may have other names. 1M pairs each take some 4 s."""
    lake.execute(f"CREATE OR REPLACE TEMP TABLE diff_pairs AS {changed(before, after)}")
    causes = _causes(lake, before, after)
    of_kind = {kind: sum(each.n for each in causes if each.kind == kind) for kind in _KINDS.values()}
    groups = _groups(lake, before, after) if of_kind["gained"] or of_kind["lost"] else ()
    lake.execute("DROP TABLE diff_pairs")
    return VersionDiff(
        str(before), str(after), before.n_pairs, after.n_pairs, of_kind["gained"], of_kind["lost"],
        of_kind["changed"], causes, groups, _drift(lake, before, after),
    )  # fmt: skip


def _causes(lake: Lake, before: Dataset, after: Dataset) -> tuple[CauseCount, ...]:
    """Count the differing pairs by kind and cause."""
    order = "ORDER BY list_position(['entered', 'left', 'changed'], kind), n DESC, cause"
    counts = "SELECT kind, cause, count(*) AS n FROM diff_pairs GROUP BY kind, cause"
    rows = lake.query(f"SELECT * FROM ({counts}) {order}")
    why = reasons(before, after)
    return tuple(CauseCount(_KINDS[kind], cause, why(kind, cause), n) for kind, cause, n in rows)


def _groups(lake: Lake, before: Dataset, after: Dataset) -> tuple[GroupCount, ...]:
    """Count gained and lost pairs by the values of each of GROUPS."""
    columns = f"image_id AS item_id, document_id, cluster, {_DOMAIN} AS domain"
    sides = " UNION ALL ".join(
        f"(SELECT kind, {columns} FROM pairs p JOIN diff_pairs d ON d.item_id = p.image_id AND d.kind = '{kind}' "
        f"WHERE dataset = {quoted(of.name)} AND version = {of.version})"
        for kind, of in (("entered", after), ("left", before))
    )
    documents = (
        f"SELECT document_id, any_value(source) AS source, any_value({_LANGUAGE}) AS said FROM documents "
        "WHERE document_id IN (SELECT document_id FROM diff_sides) GROUP BY document_id"
    )
    languages = (
        "SELECT document_id, mode(language) AS guessed FROM sentences JOIN sentence_quality USING (content) "
        "WHERE document_id IN (SELECT document_id FROM diff_sides) GROUP BY document_id"
    )
    lake.execute(f"CREATE OR REPLACE TEMP TABLE diff_sides AS {sides}")
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE diff_met AS SELECT s.*, source, coalesce(said, guessed) AS language "
        f"FROM diff_sides s LEFT JOIN ({documents}) USING (document_id) LEFT JOIN ({languages}) USING (document_id)"
    )
    found: list[GroupCount] = []
    for group, value in GROUPS.items():
        counts = (
            f"SELECT coalesce({value}, '') AS value, count(*) FILTER (kind = 'entered') AS gained, "
            "count(*) FILTER (kind = 'left') AS lost FROM diff_met GROUP BY ALL"
        )
        rows = lake.query(f"SELECT * FROM ({counts}) ORDER BY gained + lost DESC, value LIMIT {LARGEST}")
        found += [GroupCount(group, *row) for row in rows if row[0]]
    lake.execute("DROP TABLE diff_met; DROP TABLE diff_sides")
    return tuple(found)


def _drift(lake: Lake, before: Dataset, after: Dataset) -> tuple[Drift, ...]:
    """Return the spread of each measure in both versions."""
    was, now = (_spreads(lake, each) for each in (before, after))
    return tuple(Drift(name, was[name], now[name]) for name in MEASURES if was[name].n or now[name].n)


def _spreads(lake: Lake, dataset: Dataset) -> dict[str, Spread]:
    """Return the spread of each measure over the pairs of a version, in one scan."""
    parts = ", ".join(
        f"count({sql}), avg({sql}), quantile_cont(CAST({sql} AS DOUBLE), [0.1, 0.5, 0.9])" for sql in MEASURES.values()
    )
    where = f"dataset = {quoted(dataset.name)} AND version = {dataset.version}"
    row = lake.query(f"SELECT {parts} FROM pairs WHERE {where}")[0]
    return {
        name: Spread(row[3 * n], row[3 * n + 1], *(row[3 * n + 2] or (None, None, None)))
        for n, name in enumerate(MEASURES)
    }
