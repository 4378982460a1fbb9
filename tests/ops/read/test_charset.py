import gzip

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.read.charset import decode_text
from pairmill.ops.read.page.page import Page, parse
from pairmill.ops.read.source import open_source
from tests.examples import examples
from tests.worlds.charsets import WirePage, pages
from tests.worlds.samples import documents, faults, jpeg, outline, write

# A byte that an encoding lacks makes the detector rule it out; Thai has no spaces, by which the rest could be judged.
NOT_FOUND = {"windows-874, one bad byte", "iso-2022-jp, one bad byte"}
RUSSIAN = "Красная площадь находится в центре Москвы"


@pytest.mark.parametrize("page", [*pages()], ids=lambda page: page.name.replace(" ", "-"))
def test_a_page_is_decoded_as_a_browser_decodes_it(page: WirePage):
    parsed = parse("x", page.data, page.content_type)
    assert isinstance(parsed, Page)
    (paragraph,) = parsed.root.iter("p")
    wrong = paragraph.text[len(page.text) :]
    assert (paragraph.text == page.text + wrong and len(wrong) <= page.name.endswith("bad byte")) == (
        page.name not in NOT_FOUND
    )


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"Z\xc3\xbcrich, Caf\xe9 f\xc3\xbcr G\xc3\xa4ste", "Zürich, Caf\ufffd für Gäste"),
        ("Ein schönes Café".encode()[:-1], "Ein schönes Caf\ufffd"),
        *((text.encode("cp1252"), text) for text in ("naïve", "niño jugando", "5 €", "don’t", "Café crème")),
        (b"<meta charset=euc-jp>" + "丸①".encode("euc_jis_2004"), "丸①"),
        (b"<meta charset=hz-gb-2312>~{VPND~}", "\ufffd"),  # which browsers refuse to decode
        (b"<noscript>" + b" " * 2000 + b"<p><meta charset=koi8-r>\xe9", "é"),  # past <head> no browser looks for it
    ],
)
def test_texts_without_a_true_declaration_lose_a_letter_at_most(data, text):
    assert decode_text(data).text.endswith(text)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.csv", f"url,caption\nhttps://x.example/a.jpg,{RUSSIAN}\n".encode("cp1251")),
        ("x.tsv", f"url\tcaption\nhttps://x.example/a.jpg\t{RUSSIAN}\n".encode("utf-16")),  # as Excel saves it
        ("x.csv.gz", gzip.compress(f"url,caption\nhttps://x.example/a.jpg,{RUSSIAN}\n".encode("koi8-r"))),
        ("x.jsonl", f'{{"url": "https://x.example/a.jpg", "caption": "{RUSSIAN}"}}\n'.encode("cp1251")),
    ],
)
def test_lists_in_other_encodings_than_utf8_are_read(tmp_path, name, data):
    source = open_source(str(write(tmp_path, {name: data})))
    assert [outline(document) for document in documents(source)] == [["<missing>", RUSSIAN]]


def test_one_bad_byte_costs_a_list_one_letter_and_a_caption_file_its_last(tmp_path):
    line = "https://x.example/a.jpg,Zürich am schönen See".encode()
    files: dict[str, str | bytes] = {
        "x.csv": b"url,caption\n" + line + b" \xff\n",
        "b.jpg": jpeg(),
        "b.txt": "Ein Mühlrad, ein Café".encode()[:-1],
    }
    source = open_source(str(write(tmp_path, files)))
    assert sorted(outline(document)[1] for document in documents(source)) == [
        "Ein Mühlrad, ein Caf\ufffd", "Zürich am schönen See \ufffd"
    ]  # fmt: skip
    assert not faults(source)


@examples(100)
@given(
    data=st.binary(max_size=300), head=st.sampled_from([b"", b"<meta charset=", b"<?xml encoding='"]), header=st.text()
)
def test_any_bytes_and_any_header_decode(data, head, header):
    assert decode_text(head + data, f"text/html; charset={header}").n_bad >= 0


@pytest.mark.parametrize(
    "header", ["charset*" + "0" * 4400 + "*=a", 'charset="' + "a;" * 20_000, "charset=" + "a" * 9999]
)
def test_a_hostile_header_names_no_charset(header):
    assert decode_text(b"caf\xe9", f"text/html; {header}") == decode_text(b"caf\xe9")
    assert decode_text(b"caf\xe9", "text/html; charset=koi8-r, text/html").text == "cafИ"
