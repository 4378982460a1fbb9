"""The catalog at size: work list, cut, publish, what differs between versions, funnel and ``why``, on made-up metadata.

Run as ``python -m infra.bench.catalog [--rows N] [--lake FOLDER]``; the lake of :mod:`infra.bench.made_lake` is filled
in ``--lake`` when it is not there, which is kept, or in a folder that is removed. A cut and a publish leave a version
behind, so that each round has a cap of its own: the re-cut. Commits are measured by :mod:`infra.bench.commits`.
"""

from __future__ import annotations

import hashlib
import json
import statistics
import tempfile
from collections.abc import Callable
from pathlib import Path

from catalog.changes import changes
from catalog.cut import cut
from catalog.datasets import find, funnel
from catalog.lake import Lake, create_or_open
from catalog.plan import Stage
from catalog.publish import publish
from catalog.why import named, seen_by
from catalog.why_image import image
from catalog.worklist import pending_images
from infra.bench.made_lake import fill, plan
from infra.bench.measure import Row, Seconds, exponent, finish, parser, peak_mb, timed

LIMITS = {"work list": 10.0, "work list when all is done": 10.0, "cut": 10.0, "the decisions on images alone": 10.0,
          "publish": None, "what differs between two versions": None, "funnel": 1.0, "why": 1.0}  # fmt: skip


class Notes:
    """Seconds by what was asked; an empty lake's first turn counts like the others."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[Seconds]] = {}

    def __call__(self, name: str, work: Callable[[], object]) -> None:
        self.seconds.setdefault(name, []).append(took := timed(work))
        print(f"{name}: {took.wall:.2f} s wall, {took.cpu:.2f} s CPU, peak {peak_mb():.0f} MB", flush=True)

    def row(self, name: str, rows: int) -> Row:
        found, most = self.seconds[name], LIMITS[name]
        cpu, wall = (statistics.median(getattr(each, kind) for each in found) for kind in ("cpu", "wall"))
        at_size = most is not None and rows >= 10_000_000
        return Row(f"{name}, {rows} images", "wall s", wall, note=f"{cpu:.3g} CPU s",
                   target="" if most is None else f"<= {most:g} s at 10M images", met=wall <= most if at_size else None
                   )  # fmt: skip


def measured(lake: Lake, n: int, rounds: int) -> Notes:
    note, capped = Notes(), 35
    for turn in range(rounds):
        made = plan(capped - turn)
        note("work list", lambda: list(pending_images(lake, plan(), ("image_embedding",), Stage.CLIP)))
        note("work list when all is done", lambda: list(pending_images(lake, plan(), ("image_quality",), Stage.PIXELS)))
        note("the decisions on images alone", lambda made=made: cut(lake, made.with_scorer("matches", "")))
        note("cut", lambda made=made: cut(lake, made))
        note("publish", lambda made=made, turn=turn: publish(lake, made, f"run{turn}", None, lambda: turn + 2))
        dataset = find(lake, "big")
        if dataset.version > 1:
            before = find(lake, f"big@{dataset.version - 1}")
            note("what differs between two versions", lambda a=before, b=dataset: changes(lake, a, b))
        note("funnel", lambda dataset=dataset: funnel(lake, dataset))
        one = hashlib.md5(f"o{n * (turn + 1) // (rounds + 1)}".encode()).hexdigest()
        note("why", lambda one=one: _why(lake, one))
    return note


def _why(lake: Lake, item: str) -> None:
    """As the command does: what the item is, then its story as the newest version saw it."""
    found = named(lake, item, "")
    image(lake, found.images[0], seen_by(lake, find(lake, "big")))


def growth(rows: list[Row], smaller: Path) -> list[Row]:
    """How the CPU seconds grew from the lake of another result file, and what they would be at 30M images by that."""
    before = {row["what"].rpartition(", ")[0]: row for row in json.loads(smaller.read_text(encoding="utf-8"))["rows"]}
    found = []
    for row in rows:
        name, _, size = row.what.rpartition(", ")
        if name in ("work list", "cut", "the decisions on images alone", "publish", "why") and name in before:
            sizes = [int(text.split()[-2]) for text in (before[name]["what"], size)]
            seconds = [float(text.split()[0]) for text in (before[name]["note"], row.note)]
            e = exponent(sizes, seconds)
            note = f"from {sizes[0]} to {sizes[1]} images; by it {seconds[1] * (30e6 / sizes[1]) ** e:.3g} CPU s at 30M"
            found.append(Row(f"growth of {name}", "exponent", e, note=note))
    return found


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="images")
    options.add_argument("--memory", default="2.6GB", help="what DuckDB may hold before it spills")
    options.add_argument("--smaller", type=Path, help="result file of a smaller lake, to tell the growth from")
    options.add_argument("--lake", type=Path, help="folder of a lake to fill, or that was filled before")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, create_or_open(options.lake or Path(folder) / "lake") as lake:
        lake.execute(f"SET memory_limit = '{options.memory}'; SET threads = 2")
        if not lake.query("SELECT 1 FROM images LIMIT 1"):
            print(f"filled in {timed(lambda: fill(lake, options.rows)).wall:.0f} s", flush=True)
        rows = lake.query("SELECT count(*) FROM images")[0][0]
        note = measured(lake, rows, options.rounds)
    found = [note.row(name, rows) for name in LIMITS if name in note.seconds]
    found += growth(found, options.smaller) if options.smaller else []
    finish("catalog", found, options, peak_mb=round(peak_mb()))


if __name__ == "__main__":
    main()
