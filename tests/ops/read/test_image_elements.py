"""The picture that an image element means: found in idioms of lazy loading, galleries, <noscript> and AMP."""

import io

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pairmill.ops.read.page import page
from pairmill.ops.read.page.image_elements import ImageElements, is_placeholder
from pairmill.ops.read.places import tree as tree_module
from pairmill.ops.read.places.tree import open_regular
from pairmill.ops.read.source import open_source
from tests.ops.read.image_idioms import AS_KNOWN_SITES_AND_PLUGINS_WRITE, SHOWN_WHILE_WRITTEN, UNREAD_UNTIL_THE_END, D
from tests.ops.read.test_warc import response
from tests.worlds.samples import documents, jpeg, pictures, write


def photograph(seed: int, kind: str) -> bytes:
    out = io.BytesIO()
    Image.fromarray(np.random.default_rng(seed).integers(0, 255, (90, 120, 3), np.uint8)).save(out, kind)
    return out.getvalue()


def flat(side: int, kind: str) -> bytes:
    out = io.BytesIO()
    Image.new("P", (side, side)).save(out, kind)
    return out.getvalue()


def diagram(kind: str) -> bytes:
    """Draw thin lines and labels, of fewer bytes than a 56th of its pixels."""
    image = Image.new("L", (800, 600), 255)
    pen = ImageDraw.Draw(image)
    for n in range(8):
        pen.rectangle((40 + 90 * n, 60 * n, 110 + 90 * n, 60 * n + 40), outline=0)
        pen.text((45 + 90 * n, 60 * n + 10), f"part {n}", fill=0)
    out = io.BytesIO()
    image.save(out, kind)
    return out.getvalue()


def see_through() -> bytes:
    out = io.BytesIO()
    Image.fromarray((np.arange(160_000).reshape(200, 200, 4) % (8, 8, 8, 1)).astype(np.uint8)).save(out, "png")
    return out.getvalue()


def read(folder, cases: str) -> list[tuple[str, list[str], list[str]]]:
    """Return of each page its markup, the images that it means, and those that are read from it."""
    files: dict[str, str | bytes] = {
        f"{letter}{n}.{suffix}": photograph(ord(letter) * n, {"jpg": "jpeg"}.get(suffix, suffix))
        for letter in "ro" for n in (1, 2, 3) for suffix in ("jpg", "png", "webp")
    }  # fmt: skip
    files |= {"w1.gif": flat(1, "gif"), "w2.png": flat(300, "png")}
    pages = dict(enumerate(line.partition("|")[::2] for line in cases.strip().split("\n")))
    for _, markup in pages.values():
        for name in markup.replace("=", " ").replace("'", " ").replace(">", " ").replace('"', " ").split():
            if name.endswith((".gif", ".png")):
                files.setdefault(name, flat(80, name[-3:]))
    write(folder, files | {f"{n:03}.html": markup.replace("D", D) for n, (_, markup) in pages.items()})
    found = [found for found in documents(open_source(f"html_folder:{folder}")) if found.uri.endswith(".html")]
    names = [[p.url.rpartition("/")[2][:20] if p.data else "nothing" for p in pictures(each)] for each in found]
    return [(pages[n][1], pages[n][0].split(), each) for n, each in enumerate(names)]


@pytest.mark.parametrize("cases", [SHOWN_WHILE_WRITTEN, UNREAD_UNTIL_THE_END, AS_KNOWN_SITES_AND_PLUGINS_WRITE])
def test_each_page_shows_the_pictures_that_it_means_once(tmp_path, cases):
    assert [(markup, found) for markup, means, found in read(tmp_path, cases) if means != found] == []


def sources(markup: str) -> list[tuple[str, ...]]:
    parsed = page.parse("page", markup.encode())
    assert isinstance(parsed, page.Page)
    return [found.sources for found in ImageElements(parsed.root)]


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        # A picture that was saved with its page counts where its address on the web is not held.
        (f"<img src='data:image/jpeg;base64,{'A' * 5000}' data-src=/a/b>", ["/a/b", "data"]),
        ("<img src=grey.gif data-src=/image/17>", ["/image/17", "grey.gif"]),
        ("<img src=grey.gif><noscript><img src=grey.gif></noscript>", ["grey.gif"]),
        ("<img src='{{ x }}.jpg' data-src=/image/17>", ["/image/17"]),
        ("<img data-src=pixel-2.jpg>", ["pixel-2.jpg"]),
        ("<img src=clear-1.jpg data-big=b.jpg>", ["clear-1.jpg", "b.jpg"]),
        ("<img src=Loading_Big_Photo_12.jpg data-thumb=b.jpg>", ["Loading_Big_Photo_12.jpg"]),
        ("<img src=loading-32x32.jpg data-thumb=b.jpg>", ["b.jpg", "loading-32x32.jpg"]),
        ("<img src=grey.gif data-x=/image/17>", ["grey.gif"]),
        ("<img src=a.jpg><noscript><img src=https://x.example/count width=1 height=1></noscript>", ["a.jpg"]),
        ("<img src=a.jpg data-x=b.jpg>", ["a.jpg"]),
        ("<img src=c.jpg data-x=a.jpg><img src=c.jpg data-x=b.jpg>", ["a.jpg", "c.jpg"]),
        ("<video poster=a.jpg><img src=b.jpg><img src=c.jpg></video>", ["a.jpg"]),
    ],
)  # fmt: skip
def test_addresses_come_best_first(markup, expected):
    assert [each[:4] if each.startswith("data:") else each for each in sources(markup)[0]] == expected


@pytest.mark.parametrize(
    ("data", "expected"),
    [(photograph(1, "jpeg"), False), (flat(1, "gif"), True), (flat(64, "png"), True), (flat(400, "png"), True),
     (jpeg("grey", (300, 200)), True), (diagram("png"), False), (diagram("gif"), False), (see_through(), True),
     (flat(400, "png")[:80], False), (b"", False), (b"<svg>", False)],
)  # fmt: skip
def test_a_placeholder_is_tiny_or_of_one_colour(data, expected):
    assert is_placeholder(data) is expected


def test_a_placeholder_that_a_warc_file_holds_gives_way_to_a_picture_that_a_fetch_may_load(tmp_path):
    shown = b"<img src=w.gif data-x=held.jpg><img src=w.gif alt=b data-y=https://x.example/b.jpg><img src=w.gif>"
    file = response("https://x.example/", shown, "text/html") + response("https://x.example/w.gif", flat(2, "gif"), "")
    write(tmp_path, {"x.warc": file + response("https://x.example/held.jpg", photograph(1, "jpeg"), "image/jpeg")})
    (document,) = documents(open_source(str(tmp_path)))
    assert [(p.url.rpartition("/")[2], bool(p.data)) for p in pictures(document)] == [
        ("held.jpg", True), ("b.jpg", False), ("w.gif", True)
    ]  # fmt: skip


# The markup, the name of the picture that it means, and whether the source holds its bytes.
HELD = [
    ("<img src=tiny.png srcset='https://w.example/b.png 2x'>", "tiny.png", True),
    ("<img src=tiny.png srcset='held.jpg 2x'>", "held.jpg", True),
    ("<picture><source srcset=https://w.example/b.webp><img src=tiny.png></picture>", "tiny.png", True),
    ("<img src=tiny.png data-zoom=https://w.example/b.jpg>", "tiny.png", True),
    ("<img src=tiny.png data-src=https://w.example/b.jpg>", "b.jpg", False),
    ("<picture><source data-srcset=https://w.example/b.webp><img src=tiny.png></picture>", "b.webp", False),
    ("<img src=lines.png data-src=https://w.example/b.jpg>", "lines.png", True),
    ("<img src=lines.png data-src=tiny.png srcset='https://w.example/b.jpg 2x'>", "lines.png", True),
    ("<img src=clear.jpg data-src=https://w.example/b.jpg>", "clear.jpg", True),
    ("<img src=clear.jpg srcset='https://w.example/b.jpg 2x'>", "clear.jpg", True),
    ("<img src=spacer.png data-src=https://w.example/b.jpg>", "b.jpg", False),
    ("<img src=spacer.png srcset='https://w.example/b.jpg 2x'>", "b.jpg", False),
    ("<img src=spacer.png data-src=gone.jpg>", "gone.jpg", False),
    ("<img src=spacer.png data-src=held.jpg>", "held.jpg", True),
    ("<img src=clear.jpg data-src=tiny.png>", "tiny.png", True),
    ("<img src=spacer.png data-src=tiny.png>", "tiny.png", True),
    ("<img src=https://w.example/blank.gif data-src=tiny.png>", "tiny.png", True),
    ("<img src=D data-src=held.jpg>", "held.jpg", True),
]


@pytest.mark.parametrize("kind", ["folder", "warc"])
@pytest.mark.parametrize(("markup", "name", "has_bytes"), HELD)
def test_a_picture_that_the_source_holds_is_on_its_page_and_no_placeholder_is_a_document(
    tmp_path, kind, markup, name, has_bytes
):
    page = f"{markup.replace('D', D)}<p>A boat."
    files = {"tiny.png": flat(32, "png"), "spacer.png": flat(8, "png"), "lines.png": diagram("png"),
             "clear.jpg": photograph(1, "jpeg"), "held.jpg": photograph(2, "jpeg")}  # fmt: skip
    files = {each: data for each, data in files.items() if each in markup}
    if kind == "warc":
        records = [response(f"https://x.example/{each}", data, "image/png") for each, data in files.items()]
        files = {"x.warc": response("https://x.example/", page.encode(), "text/html") + b"".join(records)}
    else:
        files |= {"page.html": page.encode()}
    (document,) = documents(open_source(str(write(tmp_path, files))))
    (shown,) = pictures(document)
    assert (shown.url.rpartition("/")[2], bool(shown.data)) == (name, has_bytes)


def test_a_listing_reads_an_image_only_if_another_may_take_its_place_and_once(tmp_path, monkeypatch):
    page = "<img src=w1.gif data-x=a.jpg><img src=b1.gif><img src=b1.gif srcset='https://w.example/b.jpg 2x'>"
    write(
        tmp_path,
        {f"{n}.html": page for n in range(20)} | {name: flat(8, "gif") for name in ("w1.gif", "b1.gif", "a.jpg")},
    )
    opened = []
    monkeypatch.setattr(tree_module, "open_regular", lambda path: opened.append(path) or open_regular(path))
    open_source(f"html_folder:{tmp_path}").units()
    assert sorted(path.rpartition("/")[2] for path in opened if not path.endswith(".html")) == ["a.jpg", "w1.gif"]


@pytest.mark.parametrize("markup", [
    "<noscript>" * 1500 + "<img src=a>" * 1500,
    "<img " + " ".join(f"data-a{n}=x{n}.jpg" for n in range(3000)) + ">",
    "<img " + "on_" * 30000 + "=a.jpg data-x='" + " 1w," * 2000 + "'>",
    "<object type=image/x data=a>" * 1000 + "<img src=x>" * 1000,
])  # fmt: skip
def test_hostile_markup_is_read_to_its_end(markup):
    assert sources(markup)
