"""The catalog at size: work list, cut, publish, funnel, ``why``, and commits, on made-up metadata without pixels.

Run as ``python -m infra.bench.catalog [--rows N] [--commits N]``. Four sentences an image, three candidates a picture;
half of the shards lack their embedding. All in a folder that is removed at the end.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from pathlib import Path

from catalog.commit import Manifest, commit
from catalog.cut import cut
from catalog.datasets import find, funnel
from catalog.lake import Lake, create_or_open
from catalog.plan import Plan, Stage, compile_plan
from catalog.publish import publish
from catalog.recipe import Recipe
from catalog.why import seen_by
from catalog.why_image import image
from catalog.worklist import pending_images
from infra.bench.measure import Row, finish, parser, peak_mb, timed

SHARD = 50_000
SCORERS = {"image_quality": "q", "image_embedding": "e", "image_groups": "g", "image_clusters": "c", "matches": "m",
           "sentence_quality": "s"}  # fmt: skip
KEY = "md5(i::VARCHAR)"
TEXT = "md5('s' || (4 * i + n)::VARCHAR)"
# One row an image i of a shard; {s} is the shard. Sentences and candidates come from a range n of 4 or 3.
TABLES = {
    "images": f"""md5('o' || i) AS image_id, md5('d' || i // 3) AS document_id, (i % 3)::INTEGER AS position,
        'https://example.org/' || i || '.jpg' AS url, 'picture ' || i AS alt_text, {KEY} AS sha256,
        (200 + i % 900)::INTEGER AS width, (200 + i % 700)::INTEGER AS height, 'jpeg' AS format,
        (90000 + i % 5000)::BIGINT AS n_bytes""",
    "image_content": f"""{KEY} AS sha256, (200 + i % 900)::INTEGER AS width, (200 + i % 700)::INTEGER AS height,
        'jpeg' AS format, (90000 + i % 5000)::BIGINT AS n_bytes""",
    "payloads": f"{KEY} AS sha256, NULL AS bytes, 'file' AS uri, 0 AS \"offset\", 1 AS length",
    "image_quality": f"""{KEY} AS sha256, hash(i) % 1000 / 1.0 AS sharpness, hash(i) % 997 / 997 AS brightness,
        hash(i) % 991 / 10.0 AS colourfulness, hash(i) % 800 / 100 AS image_entropy""",
    "image_embedding": f"{KEY} AS sha256, '\\x00'::BLOB AS image_vector",
    "clusters": f"'image' AS kind, {KEY} AS key, (hash(i) % 20000)::INTEGER AS cluster",
    "sentence_content": f"{TEXT} AS content, 'a sentence with the number ' || (4 * i + n) AS text",
    "sentences": f"""md5('t' || (4 * i + n)) AS sentence_id, md5('d' || i // 3) AS document_id, n::INTEGER AS position,
        'a sentence with the number ' || (4 * i + n) AS text, {TEXT} AS content""",
    "sentence_quality": f"""{TEXT} AS content, (hash(4 * i + n) % 30)::INTEGER AS n_words, 4.0 AS text_entropy,
        false AS has_url, false AS has_emoji, false AS is_boilerplate, 'en' AS language""",
    "match_candidates": f"""{KEY} AS sha256, md5('s' || hash(i, n) % (4 * {{total}})) AS content,
        round(0.2 + hash(n, i) % 1000 / 5000, 4) AS similarity""",
}
FOUR, THREE = ("sentence_content", "sentences", "sentence_quality"), ("match_candidates",)
SCORER = {
    "image_quality": "q",
    "image_embedding": "e",
    "clusters": "c",
    "match_candidates": "m",
    "sentence_quality": "s",
}


def plan(cap: int = 1_000) -> Plan:
    recipe = {
        "name": "big",
        "models": {"clip": "open_clip:A/b"},
        "images": [
            {"name": "sharp", "keep": "sharpness >= 100"},
            {"name": "short_side", "keep": "least(width, height) >= 224"},
        ],
        "sentences": [{"name": "length", "keep": "n_words >= 3"}],
        "association": {"top_k": 3, "max_uses": 10},
        "balance": {"cap": cap},
    }
    return compile_plan(Recipe.model_validate(recipe), SCORERS)


def fill(lake: Lake, rows: int) -> None:
    for shard in range(-(-rows // SHARD)):
        manifests = []
        for table in TABLES:
            if table == "image_embedding" and shard % 2:
                continue
            manifests.append(_write(lake, table, shard, rows))
        commit(lake, manifests)


def _write(lake: Lake, table: str, shard: int, rows: int) -> Manifest:
    name, scorer = f"shard{shard:05}", SCORER.get(table, "")
    path = f"{lake.staging(table, 'bench')}/{name}.parquet"
    first, last = shard * SHARD, min(rows, (shard + 1) * SHARD)
    times = 4 if table in FOUR else 3 if table in THREE else 1
    columns = TABLES[table].replace("{total}", str(rows))
    if scorer:
        columns += f", '{scorer}' AS scorer"
    names = ", ".join(f'"{row[0]}"::{row[1]} AS "{row[0]}"' for row in lake.query(f"DESCRIBE {table}"))
    lake.execute(
        f"COPY (SELECT {names} FROM (SELECT {columns}, '{name}' AS shard, 1::BIGINT AS \"commit\" "
        f"FROM range({first}, {last}) a(i), range({times}) b(n)) ORDER BY ALL) TO '{path}' (FORMAT parquet)"
    )
    n = (last - first) * times
    return Manifest(table, f"{table}-{name}", name, scorer, n, os.path.getsize(path), 1.0, path, 1, "bench")


def commits(lake: Lake, n: int) -> list[float]:
    """Wall seconds of ``n`` commits of one file each, on a lake that holds what was filled in."""
    seconds = []
    for number in range(n):
        path = f"{lake.staging('image_hash', 'commits')}/{number}.parquet"
        lake.execute(
            f"COPY (SELECT md5(i::VARCHAR) AS sha256, 'c{number}' AS shard, 'h' AS scorer, 2::BIGINT AS \"commit\", "
            f"hash(i) AS phash FROM range({number * 10}, {number * 10 + 10}) a(i)) TO '{path}' (FORMAT parquet)"
        )
        made = Manifest("image_hash", f"c{number}", f"c{number}", "h", 10, 1, 0.1, path, 2, "commits")
        started = time.perf_counter()
        commit(lake, [made])
        seconds.append(time.perf_counter() - started)
    return seconds


def measured(lake: Lake, n: int, rounds: int) -> tuple[dict[str, float], dict[str, float]]:
    """Median CPU and wall seconds by what was asked. A cut and a publish leave a version behind: each its own cap."""
    wall: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}

    def note(name: str, work) -> None:
        took = timed(work)
        wall.setdefault(name, []).append(took.wall)
        cpu.setdefault(name, []).append(took.cpu)

    for turn in range(rounds):
        made = plan(cap=200 + turn)
        note("work list", lambda: pending_images(lake, plan(), ("image_embedding",), Stage.CLIP))
        note("cut", lambda made=made: cut(lake, made))
        note("publish", lambda made=made, turn=turn: publish(lake, made, f"run{turn}", None, lambda: turn + 2))
        dataset = find(lake, "big")
        seen = seen_by(lake, dataset)
        note("funnel", lambda dataset=dataset: funnel(lake, dataset))
        one = lake.query(f"SELECT md5('o' || {n * 2 // 3})")[0][0]
        note("why", lambda one=one, seen=seen: image(lake, one, seen))
    middle = lambda found: {name: statistics.median(each) for name, each in found.items()}  # noqa: E731
    return middle(cpu), middle(wall)


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--rows", type=int, default=1_000_000, help="images")
    options.add_argument("--commits", type=int, default=1_000)
    options.add_argument("--memory", default="3GB", help="what DuckDB may hold before it spills")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as folder, create_or_open(Path(folder) / "lake") as lake:
        lake.execute(f"SET memory_limit = '{options.memory}'; SET threads = 2")
        filled = timed(lambda: fill(lake, options.rows))
        print(f"filled in {filled.wall:.0f} s", flush=True)
        cpu, wall = measured(lake, options.rows, options.rounds)
        latency = commits(lake, options.commits)
    tenth = max(1, len(latency) // 10)
    start, end = (_p99(part) for part in (latency[:tenth], latency[-tenth:]))
    limits = {"work list": 10.0, "cut": 10.0, "funnel": 1.0, "why": 1.0, "publish": None}
    rows = [
        Row(f"{name}, {options.rows} images", "wall s", wall[name], note=f"{cpu[name]:.3g} CPU s",
            target="" if most is None else f"<= {most:g} s at 10M images",
            met=None if most is None or options.rows < 10_000_000 else wall[name] <= most)
        for name, most in limits.items()
    ]  # fmt: skip
    rows.append(
        Row(f"p99 of a commit, end of {options.commits}", "wall s", end, start, "its start", end / start,
            target="end <= 2 x start", met=end <= 2 * start, note=f"median {statistics.median(latency):.3f} s")
    )  # fmt: skip
    finish("catalog", rows, options, peak_mb=round(peak_mb()))


def _p99(seconds: list[float]) -> float:
    return sorted(seconds)[min(len(seconds) - 1, int(0.99 * len(seconds)))]


if __name__ == "__main__":
    main()
