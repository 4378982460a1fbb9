"""Benchmark the image-score stage without CLIP, against a bare pool, Data-Juicer, Daft and Ray Data.

Run as ``python -m infra.bench.image_pass [--photos FOLDER] [--pictures N] [--memory N] [--scratch FOLDER]``. Peers run
as in their documentation. Rates are (pictures at N - at 100) / (CPU seconds of the process tree at N - at 100), so that
no start-up time counts. Peers are installed into virtual environments under the scratch folder and stay there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from infra.bench import photographs, tree
from infra.bench.measure import ROOT, Row, finish, parser

FEW, COLD = 100, 1_000
ORIGINALS = 1_000  # distinct pictures; the others are copies with a comment of their own, so with other digests
PEERS = ROOT / "infra" / "bench" / "peers"
PACKAGES = {
    "Daft": ["daft", "imagehash"],
    # imagehash, aiohttp and ray are imported but not required by it; it installs further packages on its first run.
    "Data-Juicer": ["py-data-juicer", "imagehash", "aiohttp", "ray"],
}
SCRIPTS = {"Daft": "daft_pass.py", "Data-Juicer": "juicer_pass.py", "Ray Data": "ray_pass.py"}
TARGETS = {"bare pool": 0.8, "Data-Juicer": 6.0, "Daft": 2.5, "Ray Data": 5.0}


@dataclass
class Bench:
    """Folders of a run, and the peers that are installed."""

    scratch: Path
    pythons: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)

    def pictures(self, n: int) -> Path:
        """Return the folder of ``n`` pictures."""
        return self.scratch / f"pictures-{n}"

    def command(self, name: str, n: int) -> list[str]:
        """Return the command of contender ``name`` over ``n`` pictures.

        Removes the contender's output first; our own contenders get a copy of the unscored lake.
        """
        folder, out = str(self.pictures(n)), self.scratch / "out"
        shutil.rmtree(out, ignore_errors=True)
        out.unlink() if out.is_file() else None
        if name in ("pool", "ray"):
            shutil.copytree(self.scratch / f"lake-{n}", out, copy_function=_linked)
            return [sys.executable, "-m", "infra.bench.peers.stage_pass", "score", folder, str(out), name]
        if name == "bare pool":
            return [sys.executable, "-m", "infra.bench.peers.bare_pass", folder, str(out)]
        return [self.pythons[name], str(PEERS / SCRIPTS[name]), folder, str(out)]

    def run(self, name: str, n: int, memory: bool = False) -> tree.Used:
        """Run contender ``name`` over ``n`` pictures; return its resource use."""
        command = self.command(name, n)
        return tree.run(command, self.scratch / f"{name}.log", env=_plain_path(command[0]), memory=memory)


def _linked(source: str, target: str) -> None:
    """Hard-link a Parquet file, which is never written to; copy any other file."""
    if source.endswith(".parquet"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


def _plain_path(python: str) -> dict[str, str]:
    """Return a contender's environment variables, PATH beginning with its own folder.

    Data-Juicer calls pip and python by name.
    """
    return {**os.environ, "PATH": f"{Path(python).parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


def install(bench: Bench) -> None:
    """Install the peers, and run each once; record those that fail."""
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "uv"
    for name, packages in PACKAGES.items():
        # Compile to bytecode, as the Makefile does for ours.
        get = [uv, "pip", "install", "--quiet", "--compile-bytecode"]
        folder = bench.scratch / "peers" / name.lower()
        python = folder / "bin" / "python"
        try:
            if not python.exists():
                subprocess.run([uv, "venv", "--quiet", "--seed", "--python", sys.executable, str(folder)], check=True)
                subprocess.run([*get, "--python", str(python), *packages], check=True)
            bench.pythons[name] = str(python)
            bench.run(name, FEW)  # its first run installs packages and compiles
        except (subprocess.CalledProcessError, tree.Failed, OSError) as error:
            bench.missing[name] = str(error)
            print(f"{name} is missing: {error}", file=sys.stderr)
    bench.pythons["Ray Data"] = sys.executable


def make_pictures(bench: Bench, options: argparse.Namespace, sizes: list[int]) -> None:
    """Write JPEG files, and for each size a lake that has ingested them."""
    options = argparse.Namespace(**vars(options) | {"pictures": min(ORIGINALS, max(sizes))})
    made = photographs.photographs(options)
    for n in sizes:
        folder = bench.pictures(n)
        folder.mkdir()
        for number in range(n):
            (folder / f"{number:06d}.jpg").write_bytes(_named(made[number % len(made)], number))
        lake = str(bench.scratch / f"lake-{n}")
        subprocess.run(
            [sys.executable, "-m", "infra.bench.peers.stage_pass", "ingest", str(folder), lake, "pool"],
            check=True, env=_plain_path(sys.executable),
        )  # fmt: skip


def _named(data: bytes, number: int) -> bytes:
    """Return the same picture with a comment segment after its start marker, so that its digest differs."""
    return data[:2] + b"\xff\xfe\x00\x0a" + f"{number:08d}".encode() + data[2:]


def rates(bench: Bench, names: list[str], options: argparse.Namespace) -> dict[str, list[float]]:
    """Return the pictures a CPU second of each contender, one value a round, in interleaved rounds."""
    found: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            few, many = bench.run(name, FEW), bench.run(name, options.pictures)
            found[name].append((options.pictures - FEW) / (many.cpu - few.cpu))
            print(f"{name}: {found[name][-1]:.0f} img/CPU s; {few.cpu:.1f} and {many.cpu:.1f} s", flush=True)
    return found


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    photographs.add_option(options, pictures=5_000)
    options.add_argument("--memory", type=int, default=20_000, help="pictures of the largest pass whose memory is seen")
    options.add_argument("--scratch", type=Path, default=Path(tempfile.gettempdir()) / "pairmill-image-pass")
    options = options.parse_args()
    bench = Bench(options.scratch)
    sizes = sorted({FEW, COLD, options.pictures, options.memory})
    _cleared(bench)
    try:
        make_pictures(bench, options, sizes)
        install(bench)
        names = ["pool", "ray", "bare pool", *(name for name in SCRIPTS if name in bench.pythons)]
        found = rates(bench, [name for name in names if name not in bench.missing], options)
        cold = [bench.run("pool", COLD) for _ in range(options.rounds)]
        memory = {n: bench.run("ray", n, memory=True) for n in (COLD, options.memory)}
    finally:
        _cleared(bench)
    rows = [*rate_rows(found, bench.missing), _cold_row(cold), *_memory_rows(memory)]
    finish("image_pass", rows, options, rates=found, missing=bench.missing)


def _cleared(bench: Bench) -> None:
    """Empty the scratch folder, except for the installed peers."""
    bench.scratch.mkdir(parents=True, exist_ok=True)
    for path in bench.scratch.iterdir():
        if path.name != "peers":
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def rate_rows(found: dict[str, list[float]], missing: dict[str, str]) -> list[Row]:
    """Compare our rate in the pool and on Ray with each peer's."""
    rows, unit = [], "img/CPU s"
    middle: Callable[[str], float] = lambda name: statistics.median(found[name])  # noqa: E731
    for placement, where in (("pool", "in the process pool"), ("ray", "on Ray")):
        for peer, least in TARGETS.items():
            if peer in missing:
                note = f"not installed: {missing[peer][-200:]}"
                target = f">= {least:g} x {peer}"
                rows.append(Row(f"image pass {where}", unit, middle(placement), None, peer, target=target, note=note))
                continue
            ratio = statistics.median(a / b for a, b in zip(found[placement], found[peer], strict=True))
            rows.append(
                Row(
                    f"image pass {where}", unit, middle(placement), middle(peer), peer, ratio,
                    target=f">= {least:g} x {peer}", met=ratio >= least,
                )
            )  # fmt: skip
    return rows


def _cold_row(cold: list[tree.Used]) -> Row:
    seconds = statistics.median(each.wall for each in cold)
    cpu = statistics.median(each.cpu for each in cold)
    return Row(f"{COLD} pictures from a cold process", "s", seconds, target="<= 6 s", met=seconds <= 6,
               note=f"{cpu:.1f} CPU s")  # fmt: skip


def _memory_rows(memory: dict[int, tree.Used]) -> list[Row]:
    few, many = (each.beyond_ray_mb for each in memory.values())
    names = list(memory)
    return [
        Row(f"memory of the pass of {names[1]} beyond Ray's own processes", "MB", many, target="<= 600 MB",
            met=many <= 600, note=f"{memory[names[1]].peak_mb:.0f} MB with them"),
        Row(f"memory of {names[1]} against {names[0]} pictures", "times", many / few, target="flat: <= 1.2",
            met=many / few <= 1.2, note=f"{few:.0f} and {many:.0f} MB"),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
