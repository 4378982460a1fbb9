"""Find dataset versions whose pairs are not those that were published, by their content digests."""

from collections.abc import Iterator

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.amended_digest import digest_before, version_digest
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.upkeep.lost_rows import Damage


def changed_versions(lake: Lake) -> Iterator[Damage]:
    """Yield a damage for each version that was changed by more than its recorded removals. Reads all pairs."""
    for dataset in datasets.published(lake):
        if not is_as_published(lake, dataset):
            text = f"the pairs of {dataset} are not those that were published"
            yield Damage("damaged", "pairs", text, dataset.n_pairs)


def is_as_published(lake: Lake, dataset: Dataset) -> bool:
    """Return whether a version has the pairs that were published, without those that its recorded removals took out."""
    key = (dataset.name, dataset.version)
    if version_digest(lake, *key) != dataset.content_digest:
        return False
    if not dataset.amended:
        return True
    sql = (
        "SELECT a.digest_before FROM amended_versions a JOIN takedowns t USING (takedown_id) "
        'WHERE a.dataset = ? AND a.version = ? ORDER BY t."commit" LIMIT 1'
    )
    published = lake.query(sql, key)
    return bool(published) and digest_before(lake, *key) == published[0][0]
