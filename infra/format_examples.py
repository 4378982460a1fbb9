"""Small sources of each shipped format, for README's table, the tests, the fuzzer and the golden values."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass

# The address, alt text and page that examples have.
ADDRESS = "https://x.example/a.jpg"
CAPTION = "An a."
PAGE = f"<title>T</title><p>A first sentence.</p><img src=a.jpg alt='{CAPTION}'><p>A second sentence.</p>".encode()


@dataclass(frozen=True)
class Example:
    """A small example source of a format, for README's table, the tests, the fuzzer and the golden values."""

    what: str  # what such a source is, in Markdown, for README's table
    source: str  # name of its file or folder
    files: Callable[[], dict[str, bytes]]  # makes content by path, which begins with ``source`` or its name's stem
    images: int = 0  # images that its documents hold
    links: int = 0  # images that its documents only link to


def picture(*colours: str, format: str = "JPEG") -> bytes:
    """Return the bytes of an image of 40 by 30 pixels, with one page per colour; one red page by default."""
    from PIL import Image  # 0.1 CPU seconds, which only tests pay

    first, *others = (Image.new("RGB", (40, 30), colour) for colour in colours or ("red",))
    out = io.BytesIO()
    first.save(out, format, **({"save_all": True, "append_images": others} if others else {}))
    return out.getvalue()


def tar_of(files: dict[str, bytes]) -> bytes:
    """Return the bytes of a tar with these files (path -> content)."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    """Return the bytes of a zip with these files (path -> content)."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return out.getvalue()


def parquet_of(row: Mapping[str, object]) -> bytes:
    """Return the bytes of a Parquet file with one row."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([row]), out)
    return out.getvalue()


def _response(url: str, kind: str, body: bytes) -> bytes:
    """Return a compressed WARC record of a server's answer."""
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n\r\n".encode() + body
    head = f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: {url}\r\nContent-Length: {len(answer)}\r\n\r\n"
    return gzip.compress(head.encode() + answer + b"\r\n\r\n")


# A line as MMC4 is released.
MMC4 = {
    "url": "https://x.example/",
    "text_list": ["One.", "Two."],
    "similarity_matrix": [[0.1]],
    "image_info": [{"image_name": "a.jpg", "raw_url": ADDRESS, "matched_text_index": 1, "matched_sim": 0.3}],
}
# A row as OBELICS is released: lists with nulls, metadata as the JSON text of such a list.
OBELICS_IMAGE = {"document_url": "https://x.example/", "src": ADDRESS, "alt_text": CAPTION, "formatted_filename": "a"}
OBELICS = {
    "images": [ADDRESS, None],
    "metadata": json.dumps([OBELICS_IMAGE, None]),
    "general_metadata": json.dumps({"url": "https://x.example/", "warc_filename": "x.warc.gz"}),
    "texts": [None, "A first sentence."],
}
REALSYN = {"raw_image_url": ADDRESS, "text1": "One.", "text2": "Two.", "text3": "Three.", "syn_text": "Made."}
# The JSON of a sample as MINT-1T and LAION by img2dataset have it.
MINT = {"texts": ["Before.", None], "images": [None, "page_0_image_1"], "image_metadata": [{"page": 0}], "url": ADDRESS}
LAION = {"key": "0", "url": ADDRESS, "caption": CAPTION, "status": "success", "width": 40, "height": 30}

# By format, in the order of README's table.
EXAMPLES: dict[str, tuple[Example, ...]] = {
    "html_folder": (
        Example(
            "HTML pages with pictures beside them or embedded: `.html .htm .xhtml`; their main content",
            "pages",
            lambda: {"pages/p.html": PAGE, "pages/a.jpg": picture()},
            images=1,
        ),
    ),
    "html_archive": (
        Example(
            "the same packed: `.zip .tar .tar.gz .tgz`",
            "site.zip",
            lambda: {"site.zip": zip_of({"s/p.html": PAGE, "s/a.jpg": picture()})},
            images=1,
        ),
    ),
    "image_folder": (
        Example(
            "pictures, with `.txt` captions and `.json` metadata of the same name",
            "photos",
            lambda: {"photos/a.jpg": picture(), "photos/a.txt": b"An a.", "photos/a.json": b"{}"},
            images=1,
        ),
    ),
    "url_list": (
        Example(
            "lists of addresses, LAION's columns and others: `.parquet .csv .tsv .jsonl`",
            "list.csv",
            lambda: {"list.csv": f"URL,TEXT\n{ADDRESS},{CAPTION}\n".encode()},
            links=1,
        ),
    ),
    "image_table": (
        Example(
            "tables of pictures: Parquet with `{bytes, path}` or binary columns",
            "train.parquet",
            lambda: {"train.parquet": parquet_of({"image": {"bytes": picture(), "path": "a"}})},
            images=1,
        ),
    ),
    "realsyn": (
        Example(
            "RealSyn's release: `raw_image_url, text1, text2, text3, syn_text`",
            "realsyn.parquet",
            lambda: {"realsyn.parquet": parquet_of(REALSYN)},
            links=1,
        ),
    ),
    "mmc4": (
        Example(
            "MMC4: `.jsonl`, also `.gz` and `.zip`, pictures beside it or by address",
            "docs_shard_0.jsonl.zip",
            lambda: {"docs_shard_0.jsonl.zip": zip_of({"d.jsonl": json.dumps(MMC4).encode()})},
            links=1,
        ),
    ),
    "obelics": (
        Example(
            "OBELICS: Parquet of parallel lists",
            "obelics",
            lambda: {"obelics/train-00000-of-00001.parquet": parquet_of(OBELICS)},
            links=1,
        ),
    ),
    "warc": (
        Example(
            "Common Crawl: `.warc .warc.gz`, pages and what pictures the same file holds",
            "crawl.warc.gz",
            lambda: {
                "crawl.warc.gz": _response("https://x.example/", "text/html", PAGE)
                + _response(ADDRESS, "image/jpeg", picture())
            },
            images=1,
        ),
    ),
    "webdataset": (
        Example(
            "MINT-1T: WebDataset tars of JSON and TIFF",
            "mint",
            lambda: {"mint/0.tar": tar_of({"0.json": json.dumps(MINT).encode(), "0.tiff": picture(format="TIFF")})},
            images=1,
        ),
        Example(
            "WebDataset, as img2dataset and `webdataset` write it, sidecars included",
            "laion",
            lambda: {
                "laion/00000.tar": tar_of(
                    {"0.jpg": picture(), "0.txt": CAPTION.encode(), "0.json": json.dumps(LAION).encode()}
                ),
                "laion/00000.parquet": parquet_of(LAION),
                "laion/00000_stats.json": b'{"count": 1, "successes": 1}',
            },
            images=1,
        ),
    ),
}
