"""Delete the rows of one scorer from a lake: list what reads them, delete them, and record the deletion in `commits`.

The row of ``scorers`` stays, so that a version still says what made it. A later run scores anew if its recipe asks for
the same scorer; the new rows have higher commits, so they do not count for older versions.
"""

from dataclasses import dataclass

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.forgotten_scores import steps_reading
from pairmill.catalog.terms.error import PairmillError


@dataclass(frozen=True)
class Forgettable:
    """The rows of one scorer in a lake, and the versions that read them.

    Attributes:
        digest: The scorer's digest.
        name: Its name.
        rows: Its rows by table.
        bytes: Bytes of its files.
        versions: The versions that were made with it, each with the steps and rules that read its rows.
        made_from_it: Names of the scorers in the lake that were made from it: their rows stay, and cannot be made
            again from its rows.
    """

    digest: str
    name: str
    rows: dict[str, int]
    bytes: int
    versions: tuple[tuple[str, tuple[str, ...]], ...]
    made_from_it: tuple[str, ...]


def forgettable(lake: Lake, digest: str) -> Forgettable:
    """Count the rows of the scorer whose digest begins with ``digest``, and find the versions that read them.

    Raises:
        PairmillError: No scorer has this digest, several have it, or it has no rows.
    """
    found = lake.query("SELECT digest, name FROM scorers WHERE starts_with(digest, ?) ORDER BY digest", (digest,))
    if len(found) != 1:
        which = "several scorers begin" if found else "no scorer begins"
        raise PairmillError(
            f"lake '{lake.uri}': {which} with '{digest}'; name one as in: pairmill sql "
            '"SELECT digest, name, settings FROM scorers".'
        )
    whole, name = found[0]
    sql = (
        'SELECT "table", sum(rows)::BIGINT, sum(bytes)::BIGINT FROM partitions WHERE scorer = ? GROUP BY ALL ORDER BY 1'
    )
    held = [row for row in lake.query(sql, (whole,)) if row[1]]
    if not held:
        raise PairmillError(f"lake '{lake.uri}': the scorer {name} {whole} has no rows; there is nothing to forget.")
    versions = tuple(
        (str(each), steps_reading(lake, each, {whole})) for each in datasets.published(lake) if whole in each.scorers
    )
    made = "SELECT DISTINCT name FROM scorers JOIN partitions ON scorer = digest WHERE list_contains(made_from, ?)"
    after = tuple(sorted(row[0] for row in lake.query(made, (whole,))))
    return Forgettable(whole, name, {t: n for t, n, _ in held}, sum(b for *_, b in held), versions, after)


def delete_scorer(lake: Lake, found: Forgettable, commit: int) -> None:
    """Delete the scorer's rows and partitions, within a transaction of the caller. The files are erased later.

    A partition of no rows stays for each table: by it, older versions still know which table the scorer filled.
    """
    for table in found.rows:
        lake.execute(f"DELETE FROM {table} WHERE scorer = ?", (found.digest,))
    lake.execute("DELETE FROM partitions WHERE scorer = ?", (found.digest,))
    lake.execute(
        'INSERT INTO partitions BY NAME SELECT unnest(?::VARCHAR[]) AS "table", md5(concat("table", ?, ?)) AS '
        "partition_id, 'all' AS shard, ? AS scorer, 0 AS rows, 0 AS bytes, 0.0 AS seconds, '' AS run_id, "
        "? AS \"commit\", '' AS path",
        (list(found.rows), found.digest, commit, found.digest, commit),
    )


def datasets_made_with(lake: Lake, found: Forgettable) -> tuple[str, ...]:
    """Return the names of the datasets whose newest version was made with the scorer: their next run scores anew."""
    newest = {each.name: str(each) for each in datasets.published(lake)}
    made = {version for version, _ in found.versions}
    return tuple(name for name, version in newest.items() if version in made)
