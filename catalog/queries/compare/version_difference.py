"""Compare a version with the version before it: which pairs differ, and whether by a rule, a score or the source."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.compare.changes import changed
from pairmill.catalog.queries.datasets import Dataset, published
from pairmill.catalog.recipe.recipe import Recipe

SHOWN = 6  # pictures of each cause
CAUSES = 12
RELATIVE = {"duplicate": "duplicate", "exact_duplicate": "duplicate", "balance": "balance"}
TEXTS = {"no_text", "max_uses", "same_text"}


@dataclass(frozen=True)
class Difference:
    """``n`` pairs of one ``kind`` with one ``cause`` (see `changes.Change`), and SHOWN images of them.

    ``why``: 'rule' if the recipes have other predicates under the cause's name; 'score' if they have the same one, so
    that a value changed; 'source' for images that only one version has; 'duplicate', 'balance', 'texts' for these
    steps; 'values' for pairs in both versions.
    """

    kind: str
    cause: str
    n: int
    why: str
    images: tuple[dict[str, Any], ...]


def version_before(lake: Lake, dataset: Dataset) -> Dataset | None:
    """Return the newest older version of the dataset that is still there."""
    older = [each for each in published(lake) if each.name == dataset.name and each.version < dataset.version]
    return older[-1] if older else None


def differences(lake: Lake, before: Dataset, after: Dataset) -> list[Difference]:
    """Return the CAUSES largest groups of differing pairs: entered, left, changed; each largest first.

    The pairs of both versions are joined once. At 30M pairs that spills some 20 GB to disk.
    """
    ids = f"min(item_id, {SHOWN}) AS ids"
    rows = lake.query(
        f"SELECT * FROM (SELECT kind, cause, count(*) AS n, {ids} FROM ({changed(before, after)}) GROUP BY ALL "
        f"ORDER BY n DESC, kind, cause LIMIT {CAUSES}) ORDER BY list_position(['entered', 'left', 'changed'], kind), "
        "n DESC, cause"
    )
    images = _images(lake, [image_id for row in rows for image_id in row[3]])
    why = reasons(before, after)
    return [
        Difference(kind, cause, n, why(kind, cause), tuple(images[each] for each in ids if each in images))
        for kind, cause, n, ids in rows
    ]


def _images(lake: Lake, image_ids: list[str]) -> dict[str, dict[str, Any]]:
    """Return image_id, sha256 and shard of images, by id."""
    among = ", ".join(map(quoted, image_ids)) or "NULL"
    rows = lake.rows(
        f"SELECT image_id, any_value(sha256) AS sha256, any_value(c.shard) AS shard FROM (SELECT * FROM images WHERE "
        f"image_id IN ({among})) JOIN image_content c USING (sha256) GROUP BY image_id"
    )
    return {row["image_id"]: row for row in rows}


def reasons(before: Dataset, after: Dataset) -> Callable[[str, str], str]:
    """Return the function from kind and cause of a `changes.Change` to the ``why`` of a `Difference`."""
    was, now = _predicates(before), _predicates(after)
    return lambda kind, cause: _why(kind, cause, was, now)


def _predicates(dataset: Dataset) -> dict[str, str]:
    """Return the predicates of the rules on images by name."""
    return {rule.name: rule.predicate for rule in Recipe.model_validate_json(dataset.recipe).images}


def _why(kind: str, cause: str, before: dict[str, str], after: dict[str, str]) -> str:
    """Return the ``why`` of a difference; arguments are predicates by rule."""
    if kind == "changed":
        return "values"
    if cause in ("new", "gone"):
        return "source"
    if cause in RELATIVE:
        return RELATIVE[cause]
    if cause in TEXTS:
        return "texts"
    return "rule" if before.get(cause) != after.get(cause) else "score"
