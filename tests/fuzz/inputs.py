"""Fuzz the readers: good inputs of every format, mutations of them, and the invariants of what is read.

Long run, from the repository's root: ``python -m tests.fuzz.inputs --seconds 600 --seed 1``.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import multiprocessing
import random
import resource
import shutil
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path

import pyarrow as pa
from PIL import Image

from infra.format_examples import EXAMPLES
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.header import inspect
from pairmill.ops.read.source import Document, Picture, SourceError, Text, open_source
from tests.worlds.packed import sample, tar, zipped
from tests.worlds.samples import jpeg, table_bytes

PAGE = "<title>T</title><p>Before.</p><img src=a.jpg alt='An a.'><p>Café.</p><img src='data:image/gif;base64,R0lG'>"
ROWS = [{"url": f"https://x.example/{n}.jpg", "caption": f"Caption {n}.", "n": n} for n in range(4)]
# CPU seconds: the machine may have other work.
SECONDS_EACH = 5.0
# Bytes by which the process may grow over a whole run.
MEMORY = 400 * 2**20
# Seconds without an answer after which a child hangs: it imports the readers first, on a machine with other work.
HANGS_AFTER = 120.0
SPAWN = multiprocessing.get_context("spawn")


def seeds() -> dict[str, bytes]:
    """Return small good inputs by file name."""
    found = {"page.html": PAGE.encode(), "page16.html": PAGE.encode("utf-16")}
    for format in ("JPEG", "PNG", "GIF", "WEBP", "TIFF", "BMP", "AVIF"):
        out = io.BytesIO()
        Image.effect_noise((24, 18), 60).convert("RGB").save(out, format)
        found[f"a.{format.lower()}"] = out.getvalue()
    samples = [member for n in range(3) for member in sample(str(n), jpeg(), "A caption.", url="https://x.example/a")]
    site = {"s/p.html": PAGE, "s/a.jpg": jpeg(), "s/b.png": jpeg()}
    found |= {"w.tar": tar(samples), "w.tar.gz": tar(samples, "w:gz"), "s.tar": tar(list(site.items()))}
    found |= {"s.zip": zipped(site), "s0.zip": zipped(site, 0)}
    mint = {"texts": ["One.", None], "images": [None, "page_0"], "image_metadata": [{"page": 0}]}
    found["mint.tar"] = tar([("k.json", json.dumps(mint)), ("k.tiff", found["a.tiff"])])
    found["r.csv"] = b"raw_image_url,text1,text2,text3,syn_text\n" + b"https://x.example/a.jpg,One.,Two.,,Made.\n" * 3
    lines = "\n".join(json.dumps(row) for row in ROWS).encode()
    found |= {"u.jsonl": lines, "u.jsonl.gz": gzip.compress(lines), "u.jsonl.zip": zipped({"u.jsonl": lines})}
    found["u.csv"] = b"url,caption\n" + b"".join(f'{row["url"]},"{row["caption"]}"\n'.encode() for row in ROWS)
    info = [{"image_name": "a.jpg", "raw_url": "https://x.example/a.jpg", "matched_text_index": 1}]
    found["m.jsonl"] = b"\n".join([json.dumps({"text_list": ["One.", "Two."], "image_info": info}).encode()] * 3)
    found["u.parquet"] = table_bytes({name: pa.array([row[name] for row in ROWS]) for name in ROWS[0]})
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    images = pa.array([{"bytes": jpeg(), "path": "a.jpg"}] * 3, struct)
    found["i.parquet"] = table_bytes({"image": images, "caption": pa.array(["One.", "Two.", "Three."])})
    strings = pa.list_(pa.string())
    obelics = {"images": pa.array([["a.jpg", None]] * 3, strings), "texts": pa.array([[None, "T."]] * 3, strings)}
    found["o.parquet"] = table_bytes(obelics | {"metadata": pa.array(['[{"alt_text": "x"}, null]'] * 3)})
    http = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n" + PAGE.encode()
    head = b"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: https://x.example/p\r\nContent-Length: %d\r\n\r\n"
    record = head % len(http) + http + b"\r\n\r\n"
    return found | _growing() | {"c.warc": record * 3, "c.warc.gz": gzip.compress(record) * 3}


def inputs() -> dict[str, bytes]:
    """Return the seeds, and each file of the formats' examples."""
    found = seeds()
    for name, examples in EXAMPLES.items():
        for example in examples:
            found |= {f"{name}-{Path(path).name}": data for path, data in example.files().items()}
    return found


def _growing() -> dict[str, bytes]:
    """Return small cases of tests.fuzz.hostile: inputs that grow when they are read."""
    found = {
        "elements.html": b"<p>A text." + b"<p>" * 3000,
        "attributes.html": b"<p>A text.<p " + b"a=b c " * 3000 + b">",
    }
    found["many.html"] = PAGE.encode() + b"<img src='a.jpg?1'><img src=./a.jpg>" * 100
    line = json.dumps(ROWS[0])[:-1].encode()
    found["lists.jsonl"] = (
        line + b', "x": [' + b"[]," * 3000 + b"0]}\n" + line + b', "x": [' + b'{"":{}},' * 900 + b"0]}"
    )
    found["wide.csv"] = b"url,caption" + b",a" * 900 + b"\nhttps://x.example/a.jpg,One." + b",1" * 900
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 200, pa.int32()), pa.array(["word " * 2000]))
    found["same.parquet"] = table_bytes(
        {"url": pa.array([f"https://x.example/{n}.jpg" for n in range(200)]), "caption": texts}
    )
    out = io.BytesIO()
    Image.new("1", (900, 900)).save(out, "PNG")
    return found | {"bits.png": out.getvalue()}


def mutated(data: bytes, chance: random.Random) -> bytes:
    """Apply one to four mutations: truncate, flip, overwrite, repeat, delete, swap, or fill with extreme bytes."""
    found = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        if not found:
            break
        at, n = chance.randrange(len(found)), chance.choice((1, 2, 4, 8, 64, 512))
        kind = chance.randrange(7)
        if kind == 0:
            del found[at:]
        elif kind == 1:
            found[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            found[at : at + n] = chance.randbytes(n)
        elif kind == 3:
            found[at:at] = found[at : at + n] * chance.choice((1, 2, 50))
        elif kind == 4:
            del found[at : at + n]
        elif kind == 5:
            found[at : at + n] = chance.choice((b"\0", b"\xff", b"9", b"../", b"<", b'"', b"[")) * n
        else:
            other = chance.randrange(len(found))
            found[at : at + n], found[other : other + n] = found[other : other + n], found[at : at + n]
    return bytes(found)


def check(folder: Path, name: str, data: bytes) -> int:
    """Read one input as a source of its own; return the number of documents and faults.

    Every input must give documents or faults, or the source must be refused with a message. Raises AssertionError if an
    invariant fails.
    """
    folder.joinpath(name).write_bytes(data)
    started = time.process_time()
    try:
        source = open_source(str(folder))
        found = [each for unit in source.units() for each in source.read(unit)] + source.ignored()
    except SourceError as refused:
        assert name and str(folder) in str(refused)
        return 1
    finally:
        folder.joinpath(name).unlink()
    # A mutated table or archive may have no rows or members left.
    assert all(isinstance(each, Document | Fault) for each in found)
    for document in found:
        if isinstance(document, Document):
            _check_document(folder, document)
    assert time.process_time() - started < SECONDS_EACH
    return len(found)


def _check_document(folder: Path, document: Document) -> None:
    """Check the invariants of a document."""
    assert document.uri.startswith(str(folder))
    json.dumps(document.metadata, ensure_ascii=False, allow_nan=False).encode()
    document.title.encode()
    for item in document.items:
        if isinstance(item, Text):
            assert item.text.strip() and item.text.encode()
            continue
        assert isinstance(item, Picture) and bool(item.data) == (item.fault is None)
        assert b"SECRET" not in item.data
        (item.url + item.alt_text).encode()
        if item.data and not isinstance(inspect(item.data, max_pixels=1_000_000), Fault):
            (pixels,) = [Decode()(item.data)]
            assert pixels is not None


def run(seconds: float, seed: int, at_most: int = 10**9) -> dict[str, int]:
    """Mutate and read inputs for ``seconds``, in a child process; return the numbers of inputs and of rows.

    A child that dies or hangs costs its input only: the next child goes on behind it. Raises AssertionError at the end,
    which names the kept inputs that failed.
    """
    left, failed, total = seconds, [], {"inputs": 0, "rows": 0}
    with tempfile.TemporaryDirectory() as outside:
        while left > 0 and total["inputs"] < at_most:
            ours, theirs = SPAWN.Pipe(duplex=False)
            child = SPAWN.Process(target=_read_all, args=(theirs, outside, seed, total["inputs"], left, at_most))
            child.start()
            theirs.close()
            ours.poll(HANGS_AFTER)  # it imports the readers first, which takes no time of the run
            began = time.monotonic()
            name, data, why = "", b"", f"no answer within {HANGS_AFTER:g} s"
            try:
                while ours.poll(HANGS_AFTER):
                    match ours.recv():
                        case (name, data):
                            total["inputs"] += 1
                        case int(rows):
                            total["rows"] += rows
                        case told:
                            why = told
                child.kill()
            except EOFError:
                child.join()
                why = why if child.exitcode == 1 else f"died with {child.exitcode}" if child.exitcode else ""
            left -= time.monotonic() - began
            if why:
                kept = Path(tempfile.gettempdir(), f"fuzz-{seed}-{total['inputs']}-{name}")
                kept.write_bytes(data)
                failed.append(f"{kept}: {why}")
    assert not failed, "\n".join(failed)
    return total


def _read_all(pipe: Connection, outside: str, seed: int, first: int, seconds: float, at_most: int) -> None:
    """Read the inputs from number ``first`` on for ``seconds``: send (name, bytes) before each and its rows after it.

    Where a check fails, send why and exit with 1.
    """
    Decode()(jpeg())  # the first call imports torch, which no input should be charged for
    good, before = inputs(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    secret, folder = Path(outside, "secret.jpg"), Path(outside, "source")
    secret.write_bytes(b"SECRET")
    shutil.rmtree(folder, ignore_errors=True)  # a child that died left its input
    folder.mkdir()
    until = time.monotonic() + seconds
    for number in range(first, at_most):
        if time.monotonic() > until:
            return
        name = sorted(good)[number % len(good)]
        data = mutated(good[name], random.Random(f"{seed} {number}"))
        pipe.send((name, data))
        try:
            rows = check(folder, name, data)
            assert sorted(path.name for path in Path(outside).iterdir()) == [secret.name, folder.name]
            assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MEMORY / 1024
        except Exception:
            pipe.send(traceback.format_exc())
            sys.exit(1)
        pipe.send(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(run(arguments.seconds, arguments.seed))
