"""Small inputs that demand much memory, and the peak memory of a worker that reads one.

``python -m tests.fuzz.hostile [NAME …]`` prints a JSON line for each: peak MB while it is listed, ingested and decoded,
the count of each reason, and the rows of each table.
"""

from __future__ import annotations

import base64
import faulthandler
import importlib
import io
import json
import os
import sys
import tempfile
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from struct import pack

MB = 1_000_000
MOST_SECONDS = 240  # for one input, of which the slowest takes 35 CPU s
GOOD_LINE = b'{"url": "https://x.example/good.jpg", "caption": "A good line."}\n'
# As in a pool's workers: the memory of these modules counts.
PRELOADED = ("duckdb", "numpy", "pandas", "pyarrow.parquet", "simplejpeg", "torch")


def page_of_large_files(folder: Path) -> None:
    """A page of 265 bytes that refers to 12 files of 200 MB."""
    names = [f"{n}.png" for n in range(12)]
    for name in names:
        with open(folder / name, "wb") as file:
            file.write(b"\x89PNG\r\n\x1a\n")
            file.truncate(200 * MB)  # a sparse file, without disk space
    folder.joinpath("page.html").write_text("".join(f"<img src={name}>" for name in names))


def page_of_one_file_many_times(folder: Path) -> None:
    """A page with 100 references to one file of 40 MB; each names a file only if '?1' is read as part of the name."""
    with open(folder / "a.png?1", "wb") as file:
        file.write(b"\x89PNG\r\n\x1a\n")
        file.truncate(40 * MB)
    folder.joinpath("page.html").write_text("<p>A.</p>" + "<img src='a.png?1'><img src='./a.png?1'>" * 50)


def page_of_elements(folder: Path) -> None:
    """A page of 78 MB of tags; an element takes 40 times the memory of its tag."""
    folder.joinpath("page.html").write_bytes(b"<p>" * 26_000_000)


def page_of_attributes(folder: Path) -> None:
    """A page of 60 MB of attributes, 300 a tag, few enough to be compared with each other."""
    tag = b"<p " + b" ".join(b"a%x" % n for n in range(300)) + b">"
    folder.joinpath("page.html").write_bytes(tag * (60 * MB // len(tag)))


def page_of_text(folder: Path) -> None:
    """A page with one text of 200 MB."""
    folder.joinpath("page.html").write_bytes(b"<p>" + b"A word and a word. " * 10_500_000)


def page_of_embedded_pictures(folder: Path) -> None:
    """A page of 200 MB with embedded images of 20 MB each."""
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(15 * MB))
    folder.joinpath("page.html").write_bytes(
        b"".join(b"<img src='data:image/png;base64,%b'>" % picture for _ in range(10))
    )


def _table(path: Path, texts: object, urls: object) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"url": urls, "caption": texts}), path, compression="zstd", compression_level=19)


def table_of_one_text(folder: Path) -> None:
    """A Parquet file of some kB whose dictionary has one text of 120 MB, in four rows."""
    import pyarrow as pa

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 4, pa.int32()), pa.array(["word " * 24_000_000]))
    _table(folder / "t.parquet", texts, [f"https://x.example/{n}.jpg" for n in range(4)])


def table_of_twenty_gigabytes(folder: Path) -> None:
    """A Parquet file of some 100 kB that expands to 20 GB: 20,000 times one text of 1 MB."""
    import pyarrow as pa

    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), pa.array(["word " * 200_000]))
    _table(folder / "t.parquet", texts, [f"https://x.example/{n}.jpg" for n in range(20_000)])


def lines_of_lists(folder: Path) -> None:
    """A JSON line of 39 MB with 13 million lists."""
    line = b'{"url": "https://x.example/a.jpg", "x": [' + b"[]," * 13_000_000 + b"0]}\n"
    folder.joinpath("t.jsonl").write_bytes(GOOD_LINE + line)


def lines_of_objects(folder: Path) -> None:
    """A JSON line of 60 MB with nested objects."""
    line = b'{"url": "https://x.example/a.jpg", "x": [' + b'{"":{}},' * 7_500_000 + b"0]}\n"
    folder.joinpath("t.jsonl").write_bytes(GOOD_LINE + line)


def lines_of_one_picture(folder: Path) -> None:
    """A JSON line of 120 MB with an image as base64."""
    picture = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(90 * MB)).decode()
    line = json.dumps({"url": f"data:image/png;base64,{picture}", "caption": "One."}).encode()
    folder.joinpath("t.jsonl").write_bytes(GOOD_LINE + line)


def fields_of_one_line(folder: Path) -> None:
    """A CSV of 60 MB whose one row has 12 million columns."""
    names = b"url,caption," + b",".join(b"%x" % n for n in range(8_000_000))
    folder.joinpath("t.csv").write_bytes(names + b"\n" + b"https://x.example/a.jpg,One." + b",1" * 8_000_000 + b"\n")


def _png(width: int, height: int, bits: int, kind: int) -> bytes:
    """Return a PNG of zeros; ``kind`` is the colour type."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return pack(">I", len(data)) + name + data + pack(">I", zlib.crc32(name + data))

    channels = {0: 1, 2: 3, 6: 4}[kind]
    packer = zlib.compressobj(9)
    row = bytes(1 + (width * bits * channels + 7) // 8)
    data = b"".join(packer.compress(row) for _ in range(height)) + packer.flush()
    head = chunk(b"IHDR", pack(">IIBBBBB", width, height, bits, kind, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def picture_of_bits(folder: Path) -> None:
    """A PNG of 12 kB with 9,999 x 9,999 pixels of one bit each."""
    folder.joinpath("a.png").write_bytes(_png(9999, 9999, 1, 0))


def picture_with_transparency(folder: Path) -> None:
    """A PNG of 9,999 x 9,999 pixels with an alpha channel."""
    folder.joinpath("a.png").write_bytes(_png(9999, 9999, 8, 6))


def _saved(folder: Path, name: str, side: int, **options: object) -> None:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (side, side), (200, 30, 30)).save(out, **options)  # pyright: ignore[reportArgumentType]
    folder.joinpath(name).write_bytes(out.getvalue())


def picture_progressive(folder: Path) -> None:
    """A progressive JPEG of 9,999 x 9,999 pixels, whose decoder keeps all coefficients in memory."""
    _saved(folder, "a.jpg", 9999, format="JPEG", progressive=True, subsampling=0, quality=30)


def picture_webp(folder: Path) -> None:
    """A WebP of 9,999 x 9,999 pixels, whose decoder keeps several canvases in memory."""
    _saved(folder, "a.webp", 9999, format="WEBP", method=0, quality=10)


def picture_tiff(folder: Path) -> None:
    """A TIFF of 9,999 x 9,999 pixels in one strip."""
    _saved(folder, "a.tiff", 9999, format="TIFF", compression="tiff_adobe_deflate", strip_size=2**30)


def many_large_pictures(folder: Path) -> None:
    """Thirty images of 45 MB each, within the limits."""
    picture = _png(64, 64, 8, 2)
    for n in range(30):
        with open(folder / f"{n}.png", "wb") as file:
            file.write(picture + bytes([n]))
            file.truncate(45 * MB)


# Each input's generator and the expected quarantine reasons, none if it is read. Each has a good page beside it.
HOSTILE: dict[Callable[[Path], None], set[str]] = {
    page_of_large_files: {"too_large"},
    page_of_one_file_many_times: {"undecodable"},  # also the file itself, an image by its first bytes
    page_of_elements: {"too_large"},
    page_of_attributes: {"too_large"},
    page_of_text: {"too_large"},
    page_of_embedded_pictures: {"too_large"},
    table_of_one_text: {"bomb", "too_large"},
    table_of_twenty_gigabytes: {"bomb"},
    lines_of_lists: {"too_large"},
    lines_of_objects: {"too_large"},
    lines_of_one_picture: {"too_large"},
    fields_of_one_line: {"bad_record"},
    picture_of_bits: set(),
    picture_with_transparency: set(),
    picture_progressive: {"bomb"},
    picture_webp: {"bomb"},
    picture_tiff: {"bomb"},
    many_large_pictures: set(),
}
NAMES = {make.__name__: make for make in HOSTILE}


def peak_mb() -> float:
    """Return the most memory of this process since `forget_peak`, in MB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024 / MB


def forget_peak() -> None:
    """Reset the peak memory of this process."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def measured(folder: Path) -> dict[str, object]:
    """List, ingest and decode the folder as a worker does; return the peaks, reasons and rows."""
    import pyarrow.parquet as pq

    from pairmill.catalog.pending.item import WorkItem
    from pairmill.catalog.recipe.parts import Ingest
    from pairmill.ops.ban_list import BanList
    from pairmill.ops.fault import Fault
    from pairmill.ops.image.decode import Decode
    from pairmill.ops.read.source import open_source
    from pairmill.ops.text.split import SentenceSplitter
    from pairmill.tasks.collect.ingest import IngestSettings, IngestUnits, reader_names, shard_item
    from pairmill.tasks.run.items.partition import Output
    from pairmill.tasks.run.items.payloads import payloads
    from pairmill.tasks.run.pool.worker import JobWorker

    forget_peak()
    source = open_source(str(folder))
    listed = list(source.listed())
    listing_mb = round(peak_mb())
    item = shard_item(listed, source.uri)
    forget_peak()
    with tempfile.TemporaryDirectory() as out:
        readers = reader_names(Ingest())
        job = IngestUnits(
            source,
            IngestSettings(100_000_000, 50_000_000, SentenceSplitter(), "copy", BanList(), readers),
        )
        manifests = JobWorker(job)(item, Output(f"{out}/", "run", 1))
        ingest_mb = round(peak_mb())
        tables = {each.table: each.path for each in manifests if each.path}
        said = pq.read_table(tables["quarantine"]).to_pylist() if "quarantine" in tables else []
        reasons = Counter(row["reason"] for row in said)
        rows = {each.table: each.rows for each in manifests if each.rows}
        forget_peak()
        if "payloads" in tables:
            decode = Decode()
            keys = pq.read_table(tables["payloads"], columns=["sha256"])["sha256"].to_pylist()
            for _, contents in payloads(WorkItem("s", tuple(dict.fromkeys(keys)), (tables["payloads"],))):
                for data in contents:
                    found = data if isinstance(data, Fault) else decode(data)
                    reasons[found.reason if isinstance(found, Fault) else "decoded"] += 1
        decode_mb = round(peak_mb())
    return {"listing_mb": listing_mb, "ingest_mb": ingest_mb, "decode_mb": decode_mb, "reasons": reasons, "rows": rows}


def main() -> None:
    """Make the inputs named on the command line and measure each in a fork of one process, as the pool does."""
    os.environ |= {"OMP_NUM_THREADS": "1"}
    for name in PRELOADED:
        importlib.import_module(name)
    for name in sys.argv[1:] or NAMES:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made, "source")
            folder.mkdir()
            folder.joinpath("good.html").write_text("<p>A good page stands beside it.</p>")
            _in_a_fork(lambda: NAMES[name](folder))  # noqa: B023
            size = sum(path.stat().st_blocks * 512 for path in folder.iterdir())
            told = {"name": name, "kb": round(size / 1000)}
            _in_a_fork(lambda: print(json.dumps(told | measured(folder)), flush=True))  # noqa: B023


def _in_a_fork(work: Callable[[], object]) -> None:
    """Run ``work`` in a forked process and check that it succeeds. One that hangs prints where, and ends."""
    if os.fork() == 0:
        faulthandler.dump_traceback_later(MOST_SECONDS, exit=True)
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    assert os.wait()[1] == 0


if __name__ == "__main__":
    main()
