import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.fault import Fault
from pairmill.ops.read.formats.html_folder import HtmlFolder
from pairmill.ops.read.places import tree as tree_module
from pairmill.ops.read.places.tree import open_regular
from pairmill.ops.read.source import Document, Unit, open_source
from tests.examples import examples
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, write


def read_page(folder, html, **files):
    write(folder, {"page.html": html, **{name.replace("__", "/"): data for name, data in files.items()}})
    (document,) = [d for d in documents(open_source(f"html_folder:{folder}")) if d.uri.endswith("page.html")]
    return document


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("<p>One</p><img src=a.jpg><p>Two</p>", ["One", "<a.jpg>", "Two"]),
        ("<p>A sentence. <img src=a.jpg> Another one.</p>", ["A sentence.", "<a.jpg>", "Another one."]),
        ("<p>Press <img src=a.jpg> to save.</p><p>Next", ["Press to save.", "<a.jpg>", "Next"]),
        ("<div>loose <b>bold <i>both</b></i><p>broken <ul><li>x<li>y</ul>", ["loose bold both", "broken", "x", "y"]),
        ("<table><tr><td>left<td><img src=a.jpg><tr><td>right</table>", ["left", "<a.jpg>", "right"]),
        ("<pre>one\n   two</pre>a<br>b", ["one two", "a", "b"]),
        ("Tom &amp; J&eacute;r&ocirc;me &#8212; &#x1F600;", ["Tom & Jérôme — 😀"]),
        ("no markup at all", ["no markup at all"]),
        ("<!-- <img src=a.jpg> -->seen<script>'<img src=a.jpg>'</script><style>p{}</style>", ["seen"]),
    ],
)
def test_text_blocks_and_pictures_come_in_reading_order(tmp_path, html, expected):
    assert outline(read_page(tmp_path, html, **{"a.jpg": jpeg()})) == expected


@pytest.mark.parametrize(
    "html",
    [
        "<nav>Menu <img src=a.jpg></nav>text",
        "<header>Site <img src=a.jpg></header>text",
        "<footer>Imprint</footer><aside>Advert<img src=a.jpg></aside>text",
        "<form>Search<input type=image src=a.jpg><select><option>x</select></form>text",
        "<div role=navigation>Menu <img src=a.jpg></div>text",
        "<p hidden>Secret <img src=a.jpg></p>text",
        "<template>Later <img src=a.jpg></template>text",
    ],
)
def test_noise_loses_its_text_but_never_its_pictures(tmp_path, html):
    assert sorted(outline(read_page(tmp_path, html, **{"a.jpg": jpeg()}))) == ["<a.jpg>", "text"]


def test_an_articles_own_header_and_a_form_around_a_whole_page_keep_their_text(tmp_path):
    html = "<form><header>Site</header><article><header><h1>Title</h1></header><p>Body.</p></article></form>"
    document = read_page(tmp_path, html)
    assert outline(document) == ["Title", "Body."]
    assert document.title == "Title"


def test_pictures_are_counted_from_zero_with_their_alt_texts_and_addresses(tmp_path):
    html = "<img src=a.jpg alt=' first \n one '><p>x</p><img src='sub/b.jpg' title=second><img src=a.jpg>"
    found = pictures(read_page(tmp_path, html, **{"a.jpg": jpeg("red"), "sub__b.jpg": jpeg("blue")}))
    assert [(p.position, p.alt_text) for p in found] == [(0, "first one"), (1, "second"), (2, "")]
    assert [p.url for p in found] == [str(tmp_path / name) for name in ("a.jpg", "sub/b.jpg", "a.jpg")]
    assert [p.data for p in found] == [jpeg("red"), jpeg("blue"), jpeg("red")]


@pytest.mark.parametrize(
    "tag",
    [
        "<img data-src=a.jpg src='data:image/gif;base64,R0lGODlhAQABAAAAACw='>",
        "<img srcset='small.jpg 100w, a.jpg 800w'>",
        "<img src='gone.jpg' srcset='a.jpg 2x'>",
        "<picture><source srcset='a.jpg 2x'><img alt=x></picture>",
        "<svg><image href='a.jpg'/></svg>",
        "<svg><image xlink:href='a.jpg'/></svg>",
        "<object data='a.jpg' type='image/jpeg'></object>",
        "<video poster='a.jpg'></video>",
        "<input type=image src=a.jpg>",
        "<img data-src=a.jpg><noscript><img src=a.jpg></noscript>",
        "<img src='a.jpg?v=3#top'>",
        "<img src='/a.jpg'>",
        "<img src='./x/../a.jpg'>",
        "<img src='%61.jpg'>",
        "<base href='https://old.example/'><img src='a.jpg'>",
        "<base href='//old.example/x/'><img src='a.jpg'>",
        "<base href='data:,x/y/'><img src='a.jpg'>",
    ],
)
def test_the_picture_is_found_however_the_page_names_it(tmp_path, tag):
    assert outline(read_page(tmp_path, tag, **{"a.jpg": jpeg()})) == ["<a.jpg>"]


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("a b.jpg", "a%20b.jpg"),
        ("a b.jpg", "a b.jpg"),
        ("a%20b.jpg", "a%20b.jpg"),
        ("i.php?n=1.jpg", "i.php?n=1.jpg"),
        ("ü.jpg", "%C3%BC.jpg"),
        ("ü.jpg", "ü.jpg"),
        ("d/b.jpg", "d\\b.jpg"),
        ("at 9\u202fPM.jpg", "at 9\u202fPM.jpg"),
        ("u\u0308.jpg", "ü.jpg"),
        ("ü.jpg", "u%CC%88.jpg"),
        ("%C3%BC%20a.jpg", "ü a.jpg"),
    ],
)
def test_a_files_name_is_matched_decoded_and_as_it_stands(tmp_path, name, reference):
    write(tmp_path, {"p/page.html": f'<img src="../{reference}">', name: jpeg()})
    (document,) = documents(open_source(f"html_folder:{tmp_path}"))
    assert [p.fault for p in pictures(document)] == [None]
    assert pictures(document)[0].url == str(tmp_path / name)


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("gone.jpg", "missing"),
        ("https://example.org/a.jpg", "missing"),
        ("//example.org/a.jpg", "missing"),
        ("", "missing"),
        ("cid:part1", "missing"),
        ("http://[bad", "missing"),
        ("../secret.jpg", "unsafe_path"),
        ("%2e%2e/secret.jpg", "unsafe_path"),
        ("..%2fsecret.jpg", "unsafe_path"),
        ("x/../../secret.jpg", "unsafe_path"),
        ("..\\secret.jpg", "unsafe_path"),
        ("/../secret.jpg", "unsafe_path"),
        ("file:///etc/passwd", "unsafe_path"),
        ("C:\\pictures\\a.jpg", "unsafe_path"),
        ("linked.jpg", "unsafe_path"),
        ("data:image/png;base64,", "empty"),
        ("data:image/png;base64,A", "bad_record"),
        ("data:nothing", "bad_record"),
    ],
)
def test_a_picture_without_bytes_is_a_fault_in_its_place(tmp_path, reference, reason):
    write(
        tmp_path, {"secret.jpg": jpeg(), "site/x/y.txt": "", "site/page.html": f'<p>a</p><img src="{reference}" alt=b>'}
    )
    (tmp_path / "site/linked.jpg").symlink_to(tmp_path / "secret.jpg")
    (document,) = documents(open_source(f"html_folder:{tmp_path}/site"))
    (picture,) = pictures(document)
    assert picture.fault and picture.fault.reason == reason
    assert (picture.data, picture.alt_text, picture.position) == (b"", "b", 0)
    assert picture.url and picture.fault.item


def test_a_remote_picture_keeps_its_address_and_says_it_was_not_fetched(tmp_path):
    html = "<base href='https://example.org/d/'><img src=gone.jpg><img src='//cdn.example/x.png'>"
    found = pictures(read_page(tmp_path, html))
    assert [p.url for p in found] == ["https://example.org/d/gone.jpg", "http://cdn.example/x.png"]
    assert all(p.fault and "remote image: not fetched" in p.fault.detail for p in found)


def test_embedded_bytes_are_read_from_base64_and_percent_text(tmp_path):
    body = base64.b64encode(jpeg()).decode()
    broken = "\n ".join(body[at : at + 60] for at in range(0, len(body), 60)).rstrip("=")
    html = f"<img src='data:image/jpeg;base64,{body}'><img src='data:;base64,{broken}'><img src='data:,%00%FFx'>"
    found = pictures(read_page(tmp_path, html))
    assert [p.data for p in found] == [jpeg(), jpeg(), b"\x00\xffx"]
    assert all(p.fault is None and len(p.url) < 130 for p in found)


@pytest.mark.parametrize(
    ("data", "text", "charset"),
    [
        ("<p>café".encode(), "café", "utf-8"),
        ("<p>café".encode("cp1252"), "café", "cp1252"),
        ("<meta charset=ISO-8859-1><p>“café”".encode("cp1252"), "“café”", "cp1252"),
        (
            "<meta http-equiv=content-type content='text/html; charset=shift_jis'><p>日本".encode("cp932"),
            "日本",
            "cp932",
        ),
        ("<p>café".encode("utf-16"), "café", "utf-16-le"),
        ("<p>A long enough café".encode("utf-16-be"), "A long enough café", "utf-16-be"),
        ("<?xml version='1.0' encoding='windows-1251'?><html><p>Привет".encode("cp1251"), "Привет", "cp1251"),
        ("<meta charset=rot13><p>café".encode(), "café", "utf-8"),
    ],
)
def test_charsets_are_declared_or_sniffed(tmp_path, data, text, charset):
    document = read_page(tmp_path, data)
    assert (outline(document), document.metadata["charset"]) == ([text], charset)


def test_a_few_undecodable_letters_are_counted_and_a_page_of_them_is_a_fault(tmp_path):
    write(
        tmp_path,
        {"a.html": b"<meta charset=utf-8><p>a good long text with one \xff</p>", "b.html": bytes(range(256)) * 4},
    )
    source = open_source(str(tmp_path))
    assert [d.metadata["undecodable_letters"] for d in documents(source)] == [1]
    assert [(f.reason, f.item) for f in faults(source)] == [("bad_encoding", str(tmp_path / "b.html"))]


def test_pages_that_hold_nothing_or_cannot_be_read_to_their_end_are_faults(tmp_path):
    deep = "<div>" * 5000 + "<img src=a.jpg>"
    write(tmp_path, {"deep.html": deep, "empty.html": "", "blank.html": " \n", "good.html": "x", "a.jpg": jpeg()})
    source = open_source(str(tmp_path))
    assert sorted(f.reason for f in faults(source)) == ["bad_record", "empty", "empty"]
    # The deep page's picture was not read with it, so it is a document of its own.
    assert [d.uri.rpartition("/")[2] for d in documents(source)] == ["a.jpg", "good.html"]


def test_what_a_page_says_about_itself_is_kept(tmp_path):
    html = (
        "<html lang=de><title> The \n title </title><meta name=description content=D>"
        "<link rel=canonical href='https://x.example/'><p>x"
    )
    document = read_page(tmp_path, html)
    assert document.title == "The title"
    expected = {"language": "de", "description": "D", "canonical": "https://x.example/", "charset": "utf-8"}
    assert document.metadata == expected


@pytest.mark.parametrize(
    ("html", "title"),
    [
        ("<body><svg><title>Menu</title><path d=M0/></svg><h1>The mill</h1><p>x", "The mill"),
        ("<head><title>The mill</title></head><body><svg><title>Menu</title></svg>x", "The mill"),
        ("<body><svg><g><title>Menu</title></g></svg><title>The mill</title>x", "The mill"),
        ("<body><svg><title>Menu</title></svg><p>x", ""),
    ],
)
def test_the_title_of_a_drawing_is_not_that_of_its_page(tmp_path, html: str, title: str):
    assert read_page(tmp_path, html).title == title


def test_a_page_that_opts_out_is_a_row_and_its_pictures_are_no_documents(tmp_path):
    write(tmp_path, {"a.html": "<meta name=robots content='noai, noimageai'><img src=a.jpg>x", "a.jpg": jpeg()})
    (fault,) = everything(open_source(str(tmp_path)))
    assert isinstance(fault, Fault) and (fault.reason, fault.item) == ("opt_out", str(tmp_path / "a.html"))


def test_a_page_that_vanished_after_the_listing_is_missing(tmp_path):
    write(tmp_path, {"a.html": "x", "b.html": "y"})
    source = open_source(str(tmp_path))
    units = source.units()
    (tmp_path / "a.html").unlink()
    assert [found.reason if isinstance(found, Fault) else "read" for found in everything(source, units)] == [
        "missing",
        "read",
    ]


def test_an_icon_shown_ten_thousand_times_is_read_once(tmp_path, monkeypatch):
    write(tmp_path, {"page.html": "<p>" + "x <img src=a.jpg>" * 10_000, "a.jpg": jpeg()})
    source = open_source(str(tmp_path))
    units = source.units()
    opened = []
    monkeypatch.setattr(tree_module, "open_regular", lambda path: opened.append(path) or open_regular(path))
    (document,) = documents(source, units)
    monkeypatch.undo()
    assert len(pictures(document)) == 10_000
    assert len(opened) == 2


MARKUP = (
    "<p>|</p>|<div|>|<img src=|a.jpg|'|<b>|</i>|<table><td>|&amp|&#x110000;|<!--|-->|<script>|</script>|\0|é|<svg>|"
    "<form>|<base href='//x/'>|<![CDATA[|srcset=,| "
)
PIECES = st.sampled_from(MARKUP.split("|"))


@examples(200)
@given(st.one_of(st.lists(PIECES, max_size=30).map(lambda pieces: "".join(pieces).encode()), st.binary(max_size=200)))
def test_no_page_raises_and_its_texts_can_be_stored(tmp_path_factory, data):
    tree = open_source(str(write(tmp_path_factory.mktemp("p"), {"page.html": data}))).tree
    unit = Unit(tree.uri("page.html"), len(data), "", "html_folder")
    (found,) = HtmlFolder().read(tree, unit)
    if isinstance(found, Document):
        assert [p.position for p in pictures(found)] == list(range(len(pictures(found))))
        assert all((p.fault is None) == bool(p.data) for p in pictures(found))
        assert all(block and "\0" not in block and block.encode() for block in outline(found))
