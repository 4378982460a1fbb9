"""Ask a lake of the reported inputs for each right value of README.md, the table beside this file."""

import csv
import math
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pairmill.catalog.lake.opening import create_or_open
from pairmill.ops.fetch.address import AllowedAddresses
from pairmill.ops.fetch.fetcher import Fetcher
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.pixels import pixels_of
from pairmill.ops.models.generation import Generation
from pairmill.ops.models.http.chat_messages import read
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.generative_job import Answers, Queries, generated_columns
from tests.worlds.generated import small_settings
from tests.worlds.line import curate
from tests.worlds.web import LOOPBACK, photograph, picture, web

INPUTS = Path(__file__).parent / "inputs"
TABLE = Path(__file__).parent / "README.md"
RUSSIAN = "Красная площадь находится в центре Москвы"


@dataclass(frozen=True)
class Curated:
    """What a run over INPUTS left in its lake.

    ``documents`` maps a URI's file to (sentences, [(picture's name, alt text)]) of each of its documents; ``faults``
    maps an item to (reason, detail). ``brightness`` is by picture, ``words`` by sentence: (n_words, text_entropy).
    ``links`` are addresses to fetch; ``alike`` are pairs of pictures that are perceptual duplicates.
    """

    documents: dict[str, list[tuple[list[str], list[tuple[str, str]]]]]
    faults: dict[str, tuple[str, str]]
    brightness: dict[str, float]
    words: dict[str, tuple[int, float]]
    links: list[str]
    alike: list[tuple[str, str]]


def curated(lake: Path) -> Curated:
    """Read what the questions ask for."""
    short = f"replace({{}}, '{INPUTS}/', '')"
    names = "(SELECT min(url) FROM images i WHERE i.sha256 = {})"
    with create_or_open(lake, read_only=True) as opened:
        documents: dict[str, Any] = {}
        for uri, sentences, pictures in opened.query(
            f"""SELECT {short.format("uri")},
                (SELECT list(text ORDER BY reading_order) FROM sentences s WHERE s.document_id = d.document_id),
                (SELECT list(struct_pack(u := {short.format("url")}, a := alt_text) ORDER BY position) FROM images i
                    WHERE i.document_id = d.document_id)
                FROM documents d ORDER BY uri"""
        ):
            shown = [(each["u"], each["a"]) for each in pictures or []]
            documents.setdefault(uri.partition("#")[0], []).append((sentences or [], shown))
        item = short.format(f"coalesce({names.format('q.item')}, item)")
        by_picture = f"SELECT {short.format(names.format('q.sha256'))}, brightness FROM image_quality q"
        by_pair = (
            f"SELECT {short.format(names.format('e.a'))}, {short.format(names.format('e.b'))} FROM duplicate_edges e"
        )
        return Curated(
            documents,
            {name: (reason, detail) for name, reason, detail in opened.query(
                f"SELECT {item}, reason, detail FROM quarantine q"
            )},
            dict(opened.query(by_picture)),
            {text: (n, entropy) for text, n, entropy in opened.query(
                "SELECT text, n_words, text_entropy FROM sentence_quality JOIN sentence_content USING (content)"
            )},
            [url for (url,) in opened.query("SELECT url FROM links ORDER BY url")],
            opened.query(f"{by_pair} WHERE kind = 'perceptual' ORDER BY ALL"),
        )  # fmt: skip


def answered() -> list[tuple[str, str]]:
    """Return (text, status) that a run stores for each line of 15-captioner/answers.jsonl, served as an answer."""
    lines = (INPUTS / "15-captioner/answers.jsonl").read_bytes().splitlines()
    ask = Queries(HttpModel("http:x@http://h/v1"), Decode(), 64, "Describe.")
    futures: list[Future[Generation]] = []
    for line in lines:
        answer = read(200, {}, line, "the server")
        assert isinstance(answer, Generation)
        futures.append(Future())
        futures[-1].set_result(answer)
    keys = [str(number) for number in range(len(lines))]
    job = CaptionPictures(ask, "Describe.", "c", name="main")
    found = job.fetch((Answers({}, []), keys, futures)).found
    columns = generated_columns([found[key] for key in keys], "text", "status")
    return list(zip(columns["text"].to_pylist(), columns["status"].to_pylist(), strict=True))


def requested() -> list[str]:
    """Return the request lines' paths of a fetch of the listed address."""
    with web() as server, (INPUTS / "16-addresses/list.csv").open() as file:
        (row,) = csv.DictReader(file)
        url = row["url"].replace("http://127.0.0.1:PORT", server.url(""))
        server.manners[url.removeprefix(server.url(""))] = picture(photograph())
        Fetcher(reach=AllowedAddresses(LOOPBACK), seconds=5, retries=0)([url])
        return list(server.asked)


def make_lake(place: Path) -> None:
    """Run the recipe `folder` over INPUTS, with random models of a few thousand weights."""
    names = ("models", "captioners", "decoding")
    small = {name: value for name, value in small_settings().items() if name.split(".")[0] in names}
    curate(place, INPUTS, recipe="folder", settings=small, workers=1)


def is_ramp(path: str) -> bool:
    """Return whether the pixels of a picture grow from black to white, as the API gives them."""
    pixels = pixels_of((INPUTS / path).read_bytes())
    if not hasattr(pixels, "shape"):
        return False
    row = pixels[:, :, 0].mean(0)  # pyright: ignore[reportAttributeAccessIssue, reportIndexIssue]
    return bool(row[0] < 10 and row[-1] > 245 and (np.diff(row) >= 0).all())


def _page(file: str) -> Callable[[Curated], object]:
    return lambda lake: lake.documents.get(file)


def _texts(file: str) -> Callable[[Curated], object]:
    return lambda lake: [sentences for sentences, _ in lake.documents.get(file, [])]


def _reason(item: str) -> Callable[[Curated], object]:
    return lambda lake: lake.faults.get(item, ("no row", ""))[0]


BOAT = ["A blue boat lies on the calm lake in the morning.", "Nobody is in the boat."]


@dataclass(frozen=True)
class Question:
    """A question about a row of the table, and its right answer."""

    row: str
    ask: Callable[[Curated], object]
    right: object


def _one(row: str, file: str, sentences: Sequence[str], *pictures: tuple[str, str]) -> Question:
    """Ask for a file of one document."""
    return Question(row, _page(file), [(list(sentences), list(pictures))])


def _is_seen(path: str) -> Callable[[Curated], object]:
    return lambda lake: lake.faults.get(path, "decoded" if path in lake.brightness else "no row")


COLOURS = [f"14-colours/mug_{colour}.png" for colour in ("blue", "green", "red")]
QUESTIONS = (
    _one("01-warc-charset", "01-warc-charset/header.warc.gz", [f"{RUSSIAN} рядом с Кремлём."],
         ("http://one.example/a.jpg", "площадь")),
    _one("02-warc-address", "02-warc-address/space.warc.gz", BOAT, ("http://two.example/q/my%20pic.jpg", "blue boat")),
    _one("03-warc-no-type", "03-warc-no-type/no-type.warc.gz", BOAT, ("http://three.example/b.jpg", "blue boat")),
    _one("04-warc-brotli", "04-warc-brotli/brotli.warc.gz", BOAT, ("http://four.example/b.jpg", "blue boat")),
    Question("05-warc-opt-out",
             lambda lake: (lake.documents.get("05-warc-opt-out/noai.warc.gz"),
                           [reason for item, (reason, _) in lake.faults.items() if "05-" in item or "five" in item]),
             (None, ["opt_out", "opt_out"])),
    _one("06-charset/comment.html", "06-charset/comment.html", [f"{RUSSIAN}."]),
    _one("06-charset/late.html", "06-charset/late.html", [f"{RUSSIAN}."]),
    _one("06-charset/label.html", "06-charset/label.html", ["東京タワーは赤い鉄塔です。", "とても高いです。"]),
    _one("06-charset/one-bad-byte.html", "06-charset/one-bad-byte.html",
         ["Zürich liegt am schönen See, schräg gegenüber.", "Ein Caf\ufffd steht für müde Gäste offen."]),
    _one("07-lazy/p.html", "07-lazy/p.html",
         ["A red barn stands in the middle of a wide field.", "Farmers built the old mill."],
         ("07-lazy/img/barn.jpg", "red barn"), ("07-lazy/img/mill.jpg", "mill")),
    _one("08-zip-names", "08-zip-names/utf8-without-flag.zip", ["A photo of the quiet garden."],
         ("08-zip-names/utf8-without-flag.zip#写真.jpg", "garden")),
    Question("09-pictures/phone-sos.jpg", _is_seen("09-pictures/phone-sos.jpg"), "decoded"),
    Question("09-pictures/large-text.png", _is_seen("09-pictures/large-text.png"), "decoded"),
    Question("09-pictures/grey16.png",
             lambda lake: (lake.brightness["09-pictures/grey16.png"], is_ramp("09-pictures/grey16.png")), (0.5, True)),
    Question("09-pictures/grey16-key.png",
             lambda lake: round(lake.brightness["09-pictures/grey16-key.png"], 3), 0.709),
    Question("09-pictures/cut-after-size.jpg, cut.avif",
             lambda lake: [_reason(f"09-pictures/{name}")(lake) for name in ("cut-after-size.jpg", "cut.avif")],
             ["truncated", "truncated"]),
    Question("10-tsv/open-quote.tsv", _texts("10-tsv/open-quote.tsv"),
             [['"Sunset over the bay'], ["A dog on grass"], ['A "big" cat'], ["last one"]]),
    _one("11-parquet/views.parquet", "11-parquet/views.parquet", ["A view of green hills."],
         ("11-parquet/views.parquet#row=0&picture=0", "A view of green hills.")),
    Question("11-parquet/no-row-groups.parquet",
             lambda lake: [item for item in (*lake.documents, *lake.faults) if "no-row-groups" in item], []),
    Question("11-parquet/path-only.parquet",
             lambda lake: ([len(pictures) for _, pictures in lake.documents["11-parquet/path-only.parquet"]],
                           [url for url in lake.links if "eleven" in url]),
             ([1, 0], ["https://eleven.example/z.jpg"])),
    Question("12-tar/dotted-keys.tar",
             lambda lake: [(sentences, [name.rpartition("#")[2] for name, _ in pictures])
                           for sentences, pictures in lake.documents["12-tar/dotted-keys.tar"]],
             [(["A wall of many red bricks in the sun."], ["IMG_1.2.jpg"]),
              (["A blue wall beside the long road."], ["IMG_1.3.jpg"])]),
    Question("12-tar/lines.tar", _texts("12-tar/lines.tar"),
             [["a small red bird", "the bird has a long yellow beak", "this bird is sitting on a branch"]]),
    Question("13-words/hindi.html", lambda lake: lake.words.get("मैं रोज़ सेब खाता हूँ"), (5, round(math.log2(5), 4))),
    Question("14-colours", lambda lake: [pair for pair in lake.alike if set(pair) <= set(COLOURS)], []),
    Question("15-captioner/answers.jsonl",
             lambda lake: [(status, "think" in text) for text, status in answered()],
             [("ok", False), ("refusal", False), ("refusal", False), ("cut_off", False)]),
    Question("16-addresses/list.csv", lambda lake: requested(),
             ["/proxy/sig1/http%3A%2F%2Forigin.example%2Fa%2Cb.jpg"]),
    Question("17-obelics/end-mark.parquet", _texts("17-obelics/end-mark.parquet"),
             [["The first part tells of a small town by the sea.", "The second part is about a hill.",
               "A third part follows."]]),
    Question("18-parquet-abort/*.parquet",
             lambda lake: sorted(reason for item, (reason, _) in lake.faults.items() if "18-" in item),
             ["bad_record"] * 3),
)  # fmt: skip
