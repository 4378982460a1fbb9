"""Delete the rows of one scorer from a lake: list its readers, delete the rows, record the deletion in `commits`.

The row in ``scorers`` stays, so that a version still names its scorers. A later run scores again if its recipe needs
the same scorer; the new rows have higher commits, so they do not count for older versions.
"""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.recorded_removals import removed_at, unfinished_removals

STEP = "forget "  # then the scorer's digest: the step's name in `commits`
# Tables that steps of the cut read besides the rules' scores.
_OF_STEPS = {
    "image_groups": ("duplicate",), "match_candidates": ("no_text", "texts"), "sentence_groups": ("no_text", "texts"),
    "captions": ("captions",), "synthetic": ("synthetic texts",), "tags": ("tags",),
}  # fmt: skip


@dataclass(frozen=True)
class Forgettable:
    """The rows of one scorer that can be deleted, and the versions that read them."""

    digest: str
    name: str
    # table -> number of its rows; {} if they are deleted, and only their bytes must still be erased
    rows: dict[str, int]
    bytes: int  # bytes of its files
    # (NAME@VERSION, the steps and rules that read its rows) of each version made with it
    versions: tuple[tuple[str, tuple[str, ...]], ...]
    # names of the scorers in the lake that were made from it: their rows stay, and cannot be made again from its rows
    made_from_it: tuple[str, ...]


def forgettable(lake: Lake, digest: str) -> Forgettable:
    """Count the rows of the scorer whose digest begins with ``digest``, and find the versions that read them.

    Raises PairmillError unless exactly one scorer matches and has rows, deleted ones with bytes to erase included.
    """
    found = lake.query("SELECT digest, name FROM scorers WHERE starts_with(digest, ?) ORDER BY digest", (digest,))
    if len(found) != 1:
        which = "several scorers begin" if found else "no scorer begins"
        raise PairmillError(f"""lake '{lake.uri}': {which} with '{digest}'; name one as in: pairmill sql
            "SELECT digest, name, settings FROM scorers".""")
    whole, name = found[0]
    sql = 'SELECT "table", sum(rows)::BIGINT, sum(bytes)::BIGINT FROM partitions WHERE scorer = ? GROUP BY 1 ORDER BY 1'
    held = [row for row in lake.query(sql, (whole,)) if row[1]]
    if not held and all(report.get("scorer") != whole for report in unfinished_removals(lake).values()):
        when = "".join(f", forgotten at {at:%Y-%m-%d %H:%M} UTC" for at in removed_at(lake, "scorer", whole))
        raise PairmillError(
            f"lake '{lake.uri}': the scorer {name} {whole} has no rows{when}; there is nothing to forget."
        )
    using = [each for each in datasets.published(lake) if whole in each.scorers]
    versions = tuple((str(each), _steps_reading(lake, each, whole, name)) for each in using)
    made = "SELECT DISTINCT name FROM scorers JOIN partitions ON scorer = digest WHERE list_contains(made_from, ?)"
    after = tuple(sorted(row[0] for row in lake.query(made, (whole,))))
    return Forgettable(whole, name, {t: n for t, n, _ in held}, sum(b for *_, b in held), versions, after)


def delete_scorer(lake: Lake, found: Forgettable, commit: int) -> None:
    """Delete the scorer's rows and partitions, within a transaction of the caller. The files are erased later.

    A partition without rows stays for each table, so that older versions still know which table the scorer filled.
    """
    for table in found.rows:
        lake.execute(f"DELETE FROM {table} WHERE scorer = ?", (found.digest,))
    lake.execute("DELETE FROM partitions WHERE scorer = ?", (found.digest,))
    sql = """INSERT INTO partitions BY NAME SELECT unnest(?::VARCHAR[]) AS "table", md5(concat("table", ?, ?)) AS
        partition_id, 'all' AS shard, ? AS scorer, 0 AS rows, 0 AS bytes, 0.0 AS seconds, '' AS run_id,
        ? AS "commit", '' AS path"""
    lake.execute(sql, (list(found.rows), found.digest, commit, found.digest, commit))


def datasets_made_with(lake: Lake, found: Forgettable) -> tuple[str, ...]:
    """Return the names of the datasets whose newest version used the scorer, and whose next run computes it again."""
    made = {version for version, _ in found.versions}
    return tuple(each.name for each in datasets.newest_of_each(lake) if str(each) in made)


def _steps_reading(lake: Lake, dataset: Dataset, digest: str, name: str) -> tuple[str, ...]:
    """Return the rules and steps of a version that read rows of the scorer, in the order of the cut."""
    plan = plan_of(lake, dataset)
    checks = [*plan.image_checks, *plan.sentence_checks, *plan.candidate_checks]
    found = [each.name for each in checks if any(digest in plan.made_by(table) for table in each.tables)]
    for table, steps in _OF_STEPS.items():
        if digest in plan.made_by(table):
            found += steps
    if name == "balance_clusters" and plan.recipe.balance.cap is not None:
        found.append("balance")
    if name == "matches":
        found += ["no_text", "texts"]
    return tuple(dict.fromkeys(found))
