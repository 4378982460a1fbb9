"""Ingest in a bare loop: two processes read, hash and sniff the same files and write the same tables as Parquet."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from pairmill.ops.image.header import inspect

Sample = tuple[str, bytes, dict]


def samples(path: Path) -> Iterator[Sample]:
    """Yield (key, picture, metadata) in the order of the file."""
    if path.suffix == ".parquet":
        table = pq.ParquetFile(path)
        for batch in table.iter_batches(16):
            for n, row in enumerate(batch.to_pylist()):
                yield str(n), row.pop("image")["bytes"], row
        return
    with tarfile.open(path) as tar:
        found: dict[str, bytes] = {}
        for member in tar:
            key, _, kind = member.name.partition(".")
            file = tar.extractfile(member)
            found[kind] = file.read() if file else b""
            if len(found) == 3:
                yield key, found["jpg"], json.loads(found["json"])
                found = {}


def ingest(job: tuple[Path, Path]) -> tuple[int, int]:
    """Write one file's rows to the five tables; return the numbers of pictures and bytes."""
    path, out = job
    documents, images, sentences, payloads = [], [], [], []
    for key, data, said in samples(path):
        digest, header = hashlib.sha256(data).hexdigest()[:32], inspect(data)
        uri, caption = f"{path}#{key}", said["caption"]
        document = hashlib.sha256(f"{uri}{digest}{caption}".encode()).hexdigest()[:32]
        documents.append({"document_id": document, "source": str(path.parent), "uri": uri, "title": "",
                          "metadata": json.dumps(said, sort_keys=True), "unit": str(path)})  # fmt: skip
        images.append({"image_id": hashlib.sha256(f"{document}0{digest}".encode()).hexdigest()[:32],
                       "document_id": document, "position": 0, "url": said["url"], "alt_text": caption,
                       "sha256": digest, "width": header[0], "height": header[1], "format": header[2],
                       "animated": header[3], "n_bytes": len(data)})  # fmt: skip
        sentences.append({"sentence_id": hashlib.sha256(f"{document}0{caption}".encode()).hexdigest()[:32],
                          "document_id": document, "position": 0, "text": caption,
                          "content": hashlib.sha256(caption.lower().encode()).hexdigest()[:32]})  # fmt: skip
        payloads.append({"sha256": digest, "bytes": data, "uri": said["url"], "offset": 0, "length": len(data)})
    inputs = [{"uri": str(path), "size": path.stat().st_size, "etag": "", "source": str(path.parent)}]
    tables = {"documents": documents, "images": images, "sentences": sentences, "payloads": payloads, "inputs": inputs}
    for name, rows in tables.items():
        table = pa.Table.from_pylist(rows)
        group = max(1, min(len(rows), int(len(rows) * 64e6 / max(table.nbytes, 1))))
        pq.write_table(table, out / f"{name}-{path.stem}.parquet", compression="zstd", row_group_size=group)
    return len(images), sum(row["n_bytes"] for row in images)


if __name__ == "__main__":
    source, folder = (Path(each) for each in sys.argv[1:])
    folder.mkdir(parents=True)
    with multiprocessing.get_context("fork").Pool(2) as pool:
        done = list(pool.imap_unordered(ingest, [(path, folder) for path in sorted(source.iterdir())]))
        pool.close()
        pool.join()
    print(f"{sum(n for n, _ in done)} {sum(n for _, n in done)} 0")
