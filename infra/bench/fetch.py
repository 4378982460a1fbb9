"""Benchmark fetching pictures by address from a loopback nginx, against img2dataset, whole processes from cold.

Run as ``python -m infra.bench.fetch [--photos FOLDER] [--pictures N] [--scratch FOLDER]``. It needs nginx (Debian
package nginx-light), and installs img2dataset into a virtual environment under the scratch folder. Both programs store
sha256, sizes, HTTP status and EXIF beside each picture. A rate without the start is (pictures at N - at 100) /
(seconds at N - at 100).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from infra.bench import photographs, tree
from infra.bench.measure import ROOT, Row, finish, parser
from pairmill.catalog.lake.opening import create_or_open

FEW = 100
PEERS = {"img2dataset": [], "img2dataset, resize_mode=no": ["--resize_mode", "no"]}
TARGETS = {"img2dataset": 2.0, "img2dataset, resize_mode=no": 1.3}
NGINX = """daemon off; worker_processes 1; {user} pid {folder}/nginx.pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{ access_log off; sendfile on; keepalive_requests 100000; types {{ image/jpeg jpg; }}
client_body_temp_path {folder}/a; proxy_temp_path {folder}/b; fastcgi_temp_path {folder}/c;
uwsgi_temp_path {folder}/d; scgi_temp_path {folder}/e;
server {{ listen 127.0.0.1:{port}; root {folder}/pictures; }} }}
"""


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    photographs.add_option(options, 5_000)
    options.add_argument("--scratch", type=Path, help="folder for pictures and peers; without it one that is removed")
    options = options.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        scratch = options.scratch or Path(temporary)
        scratch.mkdir(parents=True, exist_ok=True)
        peer = _installed(scratch)
        make_pictures(scratch, options)
        with nginx(scratch) as port:
            for n in (FEW, options.pictures):
                _write_list(scratch, n, port)
            used = measure(scratch, peer, options)
    rows = [_row(used, name, options.pictures) for name in PEERS if name in used]
    missing = {} if peer else {"missing": "img2dataset could not be installed"}
    finish("fetch", rows or [_alone(used, options.pictures)], options, used=_told(used), **missing)


def measure(scratch: Path, peer: str, options: argparse.Namespace) -> dict[str, dict[int, list[tree.Used]]]:
    """Time both programs at 100 and at all pictures, in interleaved rounds; return resource use by name and size."""
    names = ["pairmill", *(PEERS if peer else ())]
    used: dict[str, dict[int, list[tree.Used]]] = {name: {FEW: [], options.pictures: []} for name in names}
    for _ in range(options.rounds):
        for n in (FEW, options.pictures):
            for name in names:
                used[name][n].append(_run(scratch, peer, name, n))
                print(f"{name}, {n}: {used[name][n][-1]}", file=sys.stderr)
    return used


def _run(scratch: Path, peer: str, name: str, n: int) -> tree.Used:
    """Fetch ``n`` pictures with one program; exit with its log if it did not fetch all."""
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    listed = str(scratch / f"list-{n}.parquet")
    if name == "pairmill":
        command = [
            sys.executable,
            "-m",
            "pairmill.flows.command.cli",
            "fetch",
            "30m",
            "--models",
            "demo",
            "--source",
            listed,
            "--lake",
        ]
        command += [str(out), "--allow-address", "127.0.0.1/32"]
    else:
        command = [peer, "--url_list", listed, "--input_format", "parquet", "--url_col", "url", "--caption_col"]
        command += ["caption", "--output_folder", str(out), "--output_format", "webdataset", *PEERS[name]]
    env = {**os.environ, "NO_ALBUMENTATIONS_UPDATE": "1", "PYTHONPATH": str(ROOT)}
    used = tree.run(command, scratch / "log", env)
    if _fetched(out, name) != n:
        sys.exit(f"{name} fetched {_fetched(out, name)} of {n} pictures: {(scratch / 'log').read_text()[-1000:]}")
    return used


def _fetched(out: Path, name: str) -> int:
    """Count the pictures that a program fetched."""
    if name == "pairmill":
        with create_or_open(out, read_only=True) as lake:
            return lake.query("SELECT count(*) FROM fetched WHERE sha256 IS NOT NULL")[0][0]
    return sum(json.loads(path.read_text())["successes"] for path in out.glob("*_stats.json"))


def _row(used: dict[str, dict[int, list[tree.Used]]], name: str, n: int) -> Row:
    """Compare the wall time of the whole run with one peer's; the three other ratios are in the note."""
    ours, theirs = used["pairmill"], used[name]
    whole = _ratio([each.wall for each in theirs[n]], [each.wall for each in ours[n]])
    started = _ratio(*([b.wall - a.wall for a, b in zip(each[FEW], each[n], strict=True)] for each in (theirs, ours)))
    cpu = _ratio([each.cpu for each in theirs[n]], [each.cpu for each in ours[n]])
    target = TARGETS[name]
    return Row(
        f"{n} addresses from cold, against {name}",
        "img/s",
        n / statistics.median(each.wall for each in ours[n]),
        n / statistics.median(each.wall for each in theirs[n]),
        name,
        whole,
        target=f">= {target:g} x, with the start and without",
        met=whole >= target and started >= target,
        note=f"start taken off {started:.2f} x; by CPU seconds of the process trees {cpu:.2f} x",
    )


def _alone(used: dict[str, dict[int, list[tree.Used]]], n: int) -> Row:
    """Return a row with our rate only, for a machine where the peer is not installed."""
    seconds = statistics.median(each.wall for each in used["pairmill"][n])
    return Row(f"{n} addresses from cold", "img/s", n / seconds, note="img2dataset could not be installed")


def _ratio(slow: list[float], fast: list[float]) -> float:
    """Return the median of the paired ratios ``slow`` / ``fast``."""
    return statistics.median(s / f for s, f in zip(slow, fast, strict=True))


def _told(used: dict[str, dict[int, list[tree.Used]]]) -> dict[str, dict[str, list[list[float]]]]:
    """Return [CPU seconds, wall seconds] of every round."""
    return {
        name: {str(n): [[round(each.cpu, 2), round(each.wall, 2)] for each in rounds] for n, rounds in found.items()}
        for name, found in used.items()
    }


def _installed(scratch: Path) -> str:
    """Install img2dataset; return its command, or '' if the installation fails."""
    folder = scratch / "peers" / "img2dataset"
    command = folder / "bin" / "img2dataset"
    uv = shutil.which("uv", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}") or "uv"
    try:
        if not command.exists():
            subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)], check=True)
            python = str(folder / "bin" / "python")
            subprocess.run([uv, "pip", "install", "--quiet", "--python", python, "img2dataset"], check=True)
        return str(command)
    except (subprocess.CalledProcessError, OSError) as error:
        print(f"img2dataset is missing: {error}", file=sys.stderr)
        return ""


def make_pictures(scratch: Path, options: argparse.Namespace) -> None:
    """Write the pictures that nginx serves."""
    folder = scratch / "pictures"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for number, data in enumerate(photographs.photographs(options)):
        (folder / f"{number}.jpg").write_bytes(data)


def _write_list(scratch: Path, n: int, port: int) -> None:
    """Write the Parquet list of ``n`` addresses and captions."""
    urls = [f"http://127.0.0.1:{port}/{number}.jpg" for number in range(n)]
    captions = [f"Photograph number {number}." for number in range(n)]
    pq.write_table(pa.table({"url": urls, "caption": captions}), scratch / f"list-{n}.parquet")


@contextmanager
def nginx(scratch: Path) -> Iterator[int]:
    """Serve the pictures by an nginx of one worker while the body runs; yield its port."""
    program = shutil.which("nginx", path=f"/usr/sbin:{os.environ['PATH']}")
    if program is None:
        sys.exit("nginx is not installed; apt-get install nginx-light")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # A worker started by root runs as nobody, which may not read root's temporary folder.
    user = "user root;" if os.getuid() == 0 else ""
    (scratch / "nginx.conf").write_text(NGINX.format(folder=scratch.absolute(), port=port, user=user))
    process = subprocess.Popen([program, "-c", str((scratch / "nginx.conf").absolute())], stderr=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield port
    finally:
        process.terminate()
        process.wait()


def _wait_for(port: int) -> None:
    """Wait at most 10 s until the port accepts connections."""
    for _ in range(100):
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    sys.exit("nginx does not answer")


if __name__ == "__main__":
    main()
