"""Find groups that cross the splits of published versions, by SQL alone, independent of how splits were assigned."""

from collections.abc import Iterator

from pairmill.catalog.cut.splits import HOST, links
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import published
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.upkeep.damages import Damage


def find_leaks(lake: Lake) -> Iterator[Damage]:
    """Yield a damage for each version and kind of link whose groups have pairs in several splits.

    If no linked pairs differ in their split, no group crosses. Near copies are those known when the version was
    published: groups that merge later are no fault of it.
    """
    for dataset in published(lake):
        if "split" not in dataset.divisions:
            continue
        recipe, groups = Recipe.model_validate_json(dataset.recipe), dataset.scorers_by_name(lake).get("image_groups")
        lake.execute(
            "CREATE OR REPLACE TEMP TABLE leak_nodes AS SELECT row_number() OVER () AS node, sha256, document_id, "
            f"{HOST} AS host, split FROM pairs WHERE {dataset.where}"
        )
        told = set[str]()
        for kind, sql in links(recipe, groups or "", "leak_nodes", f' AND "commit" <= {dataset.commit}'):
            if kind in told:  # near copies have two kinds of links
                continue
            crossing = (
                "SELECT count(*) AS n, arg_min(sha256, split) AS a, min(split), arg_max(sha256, split) AS b, "
                f"max(split) FROM ({sql}) JOIN leak_nodes USING (node) GROUP BY key HAVING min(split) <> max(split)"
            )
            found = lake.query(f"SELECT count(*) OVER (), sum(n) OVER (), * FROM ({crossing}) ORDER BY a, b LIMIT 1")
            for keys, rows, _, a, of_a, b, of_b in found:
                text = (
                    f"{keys:,} groups of {kind} of {dataset} cross its splits, such as {a} in {of_a} and {b} in "
                    f"{of_b}; `pairmill recut` publishes a version without"
                )
                told.add(kind)
                yield Damage("leak", "pairs", text, int(rows))
        lake.execute("DROP TABLE leak_nodes")
