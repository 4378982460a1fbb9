"""Benchmark the ingest of WebDataset tars, and of Parquet with embedded pictures, against a bare loop of two processes.

Rates are the additional pictures of a large source over those of a small one, a second, so that neither side's start
counts. Memory is a worker's peak: for one file, for ten files, and for one file of ten times the size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench import measure, photographs, tree
from tests.worlds.packed import tar

SIDES = {"ours": "infra.bench.peers.ours_ingest", "bare": "infra.bench.peers.bare_ingest"}
TARGET, MOST_MB = 0.8, 1200


def main() -> None:
    """Run the bench and write its result."""
    parser = measure.parser(__doc__)
    photographs.add_option(parser, pictures=5000)
    parser.add_argument("--files", type=int, default=10, help="into which the pictures are put")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ingest-bench-"))
    try:
        made = photographs.photographs(options)
        sources = {kind: _sources(folder / kind, kind, made, options.files) for kind in ("webdataset", "parquet")}
        rows = [row for kind, places in sources.items() for row in _rates(kind, places, folder, options)]
        rows += [_memory(kind, places, folder) for kind, places in sources.items()]
    finally:
        shutil.rmtree(folder)
    mean = statistics.mean(len(each) for each in made)
    measure.finish("ingest", rows, options, pictures=len(made), mean_kb=round(mean / 1000))


def _sources(folder: Path, kind: str, made: Sequence[bytes], files: int) -> dict[str, Path]:
    """Write four folders: 'all' (``files`` files), 'fifth' (a fifth of them), 'one' (one), 'single' (all in one)."""
    share = -(-len(made) // files)
    parts = [made[start : start + share] for start in range(0, len(made), share)]
    write = _write_tar if kind == "webdataset" else _write_parquet
    for name, chosen in {
        "all": parts,
        "fifth": parts[: max(1, files // 5)],
        "one": parts[:1],
        "single": [made],
    }.items():
        (folder / name).mkdir(parents=True)
        for n, part in enumerate(chosen):
            write(folder / name / f"{n:05}", part)
    return {name: folder / name for name in ("all", "fifth", "one", "single")}


def _about(n: int) -> dict[str, object]:
    """Return the key, address and caption of picture ``n``."""
    url = f"https://x.example/photographs/{n:09}.jpg"
    return {"key": f"{n:09}", "url": url, "caption": f"A photograph of the harbour, number {n}, taken in the evening."}


def _write_tar(path: Path, part: Sequence[bytes]) -> None:
    members: list[tuple[str, bytes | str]] = []
    for n, data in enumerate(part):
        said = _about(n)
        members += [(f"{n:09}.jpg", data), (f"{n:09}.txt", str(said["caption"])), (f"{n:09}.json", json.dumps(said))]
    path.with_suffix(".tar").write_bytes(tar(members))


def _write_parquet(path: Path, part: Sequence[bytes]) -> None:
    said = [_about(n) for n in range(len(part))]
    images = pa.array(
        [{"bytes": data, "path": None} for data in part], pa.struct({"bytes": pa.binary(), "path": pa.string()})
    )
    table = pa.table({"image": images, **{name: [row[name] for row in said] for name in ("url", "caption")}})
    pq.write_table(table, path.with_suffix(".parquet"), row_group_size=500)


def _run(side: str, source: Path, folder: Path) -> tuple[tree.Used, list[int]]:
    """Ingest a source in a cold process of ``side``.

    Returns:
        Its resource use, and the figures that it printed: pictures, bytes, and a worker's peak in MB.
    """
    lake, log = folder / "lake", folder / "log"
    used = tree.run([sys.executable, "-m", SIDES[side], str(source), str(lake)], log)
    shutil.rmtree(lake)
    return used, [int(word) for word in log.read_text().split()[-3:]]


def _rates(kind: str, places: dict[str, Path], folder: Path, options: argparse.Namespace) -> list[measure.Row]:
    """Compare the rates of both sides, wall and CPU.

    Raises:
        AssertionError: The sides read different pictures.
    """
    seen: dict[str, list[tuple[float, float]]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        said = set()
        for side in SIDES:
            few, (n_few, _, _) = _run(side, places["fifth"], folder)
            many, (n_many, n_bytes, _) = _run(side, places["all"], folder)
            more = n_many - n_few
            seen[side].append((more / (many.wall - few.wall), more / (many.cpu - few.cpu)))
            said.add((n_many, n_bytes))
        assert len(said) == 1, f"the two sides read different pictures: {said}"
    rows = []
    for unit, place in (("img/s", 0), ("img/CPU s", 1)):
        ours, bare = (statistics.median(each[place] for each in seen[side]) for side in SIDES)
        ratio = statistics.median(o[place] / b[place] for o, b in zip(seen["ours"], seen["bare"], strict=True))
        rows.append(
            measure.Row(
                f"{kind}, start taken off",
                unit,
                ours,
                bare,
                "bare loop",
                ratio,
                target=f">= {TARGET}",
                met=ratio >= TARGET,
            )
        )
    return rows


def _memory(kind: str, places: dict[str, Path], folder: Path) -> measure.Row:
    """Return the row of a worker's peak memory over the three kinds of source."""
    peaks = {name: _run("ours", places[name], folder)[1][2] for name in ("one", "all", "single")}
    note = (
        f"one file {peaks['one']} MB, ten files {peaks['all']} MB, one file of ten times the size {peaks['single']} MB"
    )
    worst = max(peaks.values())
    return measure.Row(f"{kind}, a worker's peak", "MB", worst, target=f"<= {MOST_MB}", met=worst <= MOST_MB, note=note)


if __name__ == "__main__":
    main()
