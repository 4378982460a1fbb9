"""Measure the commands that answer from stored scores: ``python -m infra.bench.answers --images 1000000``.

The lake is made (`infra.bench.made_lake`). A re-cut is the whole trial after the first cut has cached the facts: cut,
funnel, and the images nearest each threshold. The two versions that are compared have almost as many pairs as images.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

from infra.bench.made_lake import fill, plan
from infra.bench.measure import Row, cpu, finish, parser, timed, wall
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import image_funnel
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.compare.version_diff import version_diff
from pairmill.catalog.queries.gallery.marginal_items import marginal_items

RECUT, DIFF = 1.5, 5.0


def main() -> None:
    """Make the lake, and measure."""
    options = parser(__doc__)
    options.add_argument("--images", type=int, default=1_000_000)
    options.add_argument("--made", type=Path, help="folder to make the lake in, or that has it already")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(given.made or folder) / f"lake-{given.images}"
        if not (path.parent / f"{path.name}.done").exists():
            _make(path, given.images)
        with create_or_open(path) as lake:
            rows = _measure(lake, given)
    finish("answers", rows, given)


def _make(path: Path, n: int) -> None:
    """Make a lake of ``n`` images and two versions; a file beside the lake says that it is complete."""
    shutil.rmtree(path, ignore_errors=True)
    with create_or_open(path) as lake:
        fill(lake, n)
        _publish(lake, n)
    (path.parent / f"{path.name}.done").touch()


def _publish(lake: Lake, n: int) -> None:
    """Write two versions of ``n`` pairs: one in 50 is lost, one in 50 gained, one in 20 has another similarity."""
    recipe = quoted(plan().recipe.model_dump_json())
    for version, lost, similarity in ((1, 0, "0.3"), (2, 1, "if(number % 20 = 2, 0.4, 0.3)")):
        numbered = "SELECT *, row_number() OVER (ORDER BY image_id) AS number FROM images"
        key = f"'big' AS dataset, {version} AS version"
        columns = (
            f"{key}, image_id, sha256, document_id, url AS raw_image_url, 'A red fox number ' || number || ' sleeps in "
            f"the sun.' AS text1, {similarity} AS similarity1, {similarity} AS best_similarity, "
            "number % 1000 AS cluster"
        )
        lake.execute(f"INSERT INTO pairs BY NAME SELECT {columns} FROM ({numbered}) WHERE number % 50 <> {lost}")
        fate = f"if(number % 50 = {lost}, 'clip_filter', '')"
        lake.execute(
            f"INSERT INTO decisions BY NAME SELECT {key}, image_id AS item_id, 'image' AS kind, {fate} AS dropped_by "
            f"FROM ({numbered})"
        )
        lake.execute(
            f"INSERT INTO datasets BY NAME SELECT 'big' AS name, {version} AS version, {recipe} AS recipe, "
            f"1 AS commit, '' AS content_digest, false AS amended, {n} AS n_pairs, 'run' AS run_id, now() AS created_at"
        )


def _measure(lake: Lake, given: argparse.Namespace) -> list[Row]:
    """Return the rows: a re-cut and a difference, as medians."""
    cut(lake, plan())  # caches the facts
    caps = iter(range(5, 99))

    def recut() -> None:
        changed = plan(next(caps))
        cut(lake, changed)
        image_funnel(lake, changed)
        marginal_items(lake, changed)

    before, after = datasets.find(lake, "big@1"), datasets.find(lake, "big@2")
    cuts = [timed(recut) for _ in range(given.rounds)]
    diffs = [timed(lambda: version_diff(lake, before, after)) for _ in range(given.rounds)]
    return [
        Row(f"{what} of {given.images:,} images", "CPU s", cpu(found), target=f"<= {most:g} wall s",
            met=wall(found) <= most, note=f"{wall(found):.3f} wall s")
        for what, found, most in (("re-cut, rates and marginal images", cuts, RECUT),
                                  ("difference of two versions", diffs, DIFF))
    ]  # fmt: skip


if __name__ == "__main__":
    main()
