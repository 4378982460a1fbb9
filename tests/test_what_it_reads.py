"""Run each command of the docs' table of formats on files of its format, through the real parser and ingest."""

import io
import json
import re
import shlex
from argparse import Namespace
from collections.abc import Iterator
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
import webdataset
from PIL import Image
from warcio.statusandheaders import StatusAndHeaders
from warcio.warcwriter import WARCWriter

from pairmill.flows.command.cli import parser
from pairmill.flows.command.pairmill_run import compute_of, overrides
from pairmill.flows.run_start import session
from pairmill.flows.settings import load_recipe
from pairmill.ops.read.source import open_source
from pairmill.tasks.collect.ingest import ingest
from pairmill.tasks.run import pool
from tests.worlds.packed import zipped
from tests.worlds.s3 import fresh_filesystem, server, upload
from tests.worlds.samples import documents, faults, jpeg, pictures, table_bytes, write
from tests.worlds.shared import new_lake

__all__ = ["server"]  # a fixture
ROOT = Path(__file__).resolve().parents[1]
PAGE_OF_FORMATS = (ROOT / "infra/docs/sources.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"\| `(pairmill run [^`]+)`(?= \|)", PAGE_OF_FORMATS)
WEB = "https://x.example/a.jpg"
PAGE = "<title>T</title><p>A first sentence.</p><img src=a.jpg alt='An a.'><p>A second sentence.</p>"


def warc() -> bytes:
    """Return a WARC file with a page and an image."""
    out = io.BytesIO()
    writer = WARCWriter(out, gzip=True)
    for url, kind, body in [("https://x.example/", "text/html", PAGE.encode()), (WEB, "image/jpeg", jpeg())]:
        head = StatusAndHeaders("200 OK", [("Content-Type", kind)], protocol="HTTP/1.1")
        writer.write_record(writer.create_warc_record(url, "response", payload=io.BytesIO(body), http_headers=head))
    return out.getvalue()


def samples(*each: dict[str, object]) -> bytes:
    """Return a WebDataset tar of these samples."""
    out = io.BytesIO()
    with webdataset.TarWriter(out) as writer:
        for n, sample in enumerate(each):
            writer.write({"__key__": f"{n:09}", **sample})
    return out.getvalue()


def tiff(*colours: str) -> bytes:
    """Return a TIFF with one page per colour."""
    out = io.BytesIO()
    first, *rest = (Image.new("RGB", (40, 30), colour) for colour in colours)
    first.save(out, "TIFF", save_all=True, append_images=rest)
    return out.getvalue()


def obelics() -> bytes:
    """Return an OBELICS table as released: parallel lists with nulls, metadata as the JSON text of a parallel list."""
    strings = pa.list_(pa.string())
    said = [{"document_url": "https://x.example/", "src": WEB, "alt_text": "An a.", "formatted_filename": "a"}, None]
    return table_bytes(
        {
            "images": pa.array([[WEB, None]], strings),
            "metadata": pa.array([json.dumps(said)]),
            "general_metadata": pa.array([json.dumps({"url": "https://x.example/", "warc_filename": "x.warc.gz"})]),
            "texts": pa.array([[None, "A first sentence."]], strings),
        }
    )


STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
LAION = {"key": "000000000", "url": WEB, "caption": "An a.", "status": "success", "width": 8, "height": 6}
MINT = {"texts": ["Before.", None], "images": [None, "page_0_image_1"], "image_metadata": [{"page": 0}], "url": WEB}
INFO = {"image_name": "a.jpg", "raw_url": WEB, "matched_text_index": 1, "matched_sim": 0.3}
MMC4 = {"url": "https://x.example/", "text_list": ["One.", "Two."], "similarity_matrix": [[0.1]], "image_info": [INFO]}
REALSYN = {"raw_image_url": WEB, "text1": "One.", "text2": "Two.", "text3": "Three.", "syn_text": "Made."}
# For each source that the table names: its files, then its format, the images stored and the images left to fetch.
PLACES: dict[str, tuple[dict[str, str | bytes], tuple[str, int, int]]] = {
    "pages": ({"pages/p.html": PAGE, "pages/a.jpg": jpeg()}, ("html_folder", 1, 0)),
    "site.zip": ({"site.zip": zipped({"s/p.html": PAGE, "s/a.jpg": jpeg()})}, ("html_archive", 1, 0)),
    "crawl.warc.gz": ({"crawl.warc.gz": warc()}, ("warc", 1, 0)),
    "obelics": ({"obelics/train-00000-of-00001.parquet": obelics()}, ("obelics", 0, 1)),
    "docs_shard_0.jsonl.zip": ({"docs_shard_0.jsonl.zip": zipped({"d.jsonl": json.dumps(MMC4)})}, ("mmc4", 0, 1)),
    "mint": ({"mint/0.tar": samples({"json": MINT, "tiff": tiff("red")})}, ("webdataset", 1, 0)),
    "laion": (
        {
            "laion/00000.tar": samples({"jpg": jpeg(), "txt": "An a.", "json": LAION}),
            "laion/00000.parquet": table_bytes({name: pa.array([value]) for name, value in LAION.items()}),
            "laion/00000_stats.json": json.dumps({"count": 1, "successes": 1}),
        },
        ("webdataset", 1, 0),
    ),
    "photos": ({"photos/a.jpg": jpeg(), "photos/a.txt": "An a.", "photos/a.json": "{}"}, ("image_folder", 1, 0)),
    "train.parquet": (
        {"train.parquet": table_bytes({"image": pa.array([{"bytes": jpeg(), "path": "a"}], STRUCT)})},
        ("image_table", 1, 0),
    ),
    "list.csv": ({"list.csv": f"URL,TEXT\n{WEB},An a.\n"}, ("url_list", 0, 1)),
    "realsyn.parquet": (
        {"realsyn.parquet": table_bytes({name: pa.array([value]) for name, value in REALSYN.items()})},
        ("realsyn", 0, 1),
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def places(server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Write all sources into one folder and one bucket; start new workers, which know the bucket's endpoint."""
    folder = tmp_path_factory.mktemp("places")
    for files, _ in PLACES.values():
        write(folder, files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", server)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.chdir(folder)
        fresh_filesystem()
        client = boto3.client("s3")
        client.create_bucket(Bucket="bucket")
        upload(client, folder, "", bucket="bucket")
        pool.dismiss()
        yield folder
    pool.dismiss()
    fresh_filesystem()


def test_the_table_names_a_place_of_every_format_on_this_machine_and_on_s3():
    sources = [shlex.split(command)[-1] for command in COMMANDS]
    assert sorted(sources) == sorted([*PLACES, *(f"s3://bucket/{place}" for place in PLACES)])


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_command_of_the_table_names_is_found_and_read(places: Path, command: str):
    name = parsed(command).source[0]
    format, kept, to_fetch = PLACES[name.removeprefix("s3://bucket/")][1]
    source = open_source(name)
    assert {unit.format for unit in source.units()} == {format}
    shown = [picture for document in documents(source) for picture in pictures(document)]
    assert [sum(bool(picture.data) for picture in shown), len(shown)] == [kept, kept + to_fetch]
    assert faults(source) == []


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_table_ingests_what_it_says(places: Path, tmp_path: Path, command: str):
    args = parsed(command, "--models", "demo", "--lake", str(new_lake(tmp_path / "lake")), "--workers=1")
    _, kept, to_fetch = PLACES[args.source[0].removeprefix("s3://bucket/")][1]
    recipe = load_recipe(args.recipe, overrides(args.set), args.models)
    with session(recipe, args.source, args.lake, compute_of(args)) as opened:
        assert ingest(opened) == 1
        count = "SELECT (SELECT count(*) FROM images), (SELECT count(*) FROM links), (SELECT count(*) FROM quarantine)"
        assert opened.lake.query(count) == [(kept, to_fetch, 0)]
        assert opened.lake.query("SELECT DISTINCT source FROM documents") == [(open_source(args.source[0]).uri,)]
        assert ingest(opened) == 0


def parsed(command: str, *more: str) -> Namespace:
    """Parse a command of the table, with more arguments."""
    return parser().parse_args([*shlex.split(command)[1:], *more])
