"""Tables of pictures in every shape that people have them, and rows that have none."""

import datetime
import gzip
import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.fault import Fault
from pairmill.ops.read.page.links import is_link
from pairmill.ops.read.records import tables, text_rows
from pairmill.ops.read.source import Document, open_source
from tests.examples import examples
from tests.worlds.packed import zipped
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, table_bytes, write
from tests.worlds.text_tables import jsonl, separated

# The schema of a footer says of one column that it has no nulls; its size statistics count them all the same. Asked for
# that column's chunk, pyarrow 26 ends the process.
OPTIONAL, REQUIRED = b"\x25\x02", b"\x25\x00"
ROWS = [
    {"SAMPLE_ID": 7, "URL": "https://x.example/a.jpg", "TEXT": "An a.", "LICENSE": "cc-by", "NSFW": "UNLIKELY"},
    {
        "SAMPLE_ID": 8,
        "URL": "https://x.example/b.jpg",
        "TEXT": 'B, "quoted"\non lines.',
        "LICENSE": None,
        "NSFW": "?",
    },
]


def columns_of(rows):
    return {name: pa.array([row.get(name) for row in rows]) for name in rows[0]}


TABLES = {
    "x.parquet": table_bytes(columns_of(ROWS)),
    "x.csv": separated(ROWS, ","),
    "x.tsv": separated(ROWS, "\t"),
    "x.jsonl": jsonl(ROWS),
    "x.jsonl.gz": gzip.compress(jsonl(ROWS)),
    "x.csv.gz": gzip.compress(separated(ROWS, ",")),
    "x.jsonl.zip": zipped({"x.jsonl": jsonl(ROWS)}),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_list_of_addresses_with_laions_names_is_read_from_every_kind_of_table(tmp_path, name):
    source = open_source(str(write(tmp_path, {name: TABLES[name]})))
    first, second = documents(source)
    assert [unit.format for unit in source.units()] == ["url_list"]
    assert outline(first) == ["<missing>", "An a."]
    assert outline(second) == ["<missing>", 'B, "quoted"', "on lines."]
    (picture,) = pictures(first)
    assert (picture.url, picture.alt_text) == ("https://x.example/a.jpg", "An a.")
    assert picture.fault and picture.fault.reason == "missing"
    assert picture.fault.detail.startswith("remote image: not fetched")
    assert {"LICENSE": "cc-by", "NSFW": "UNLIKELY"}.items() <= first.metadata.items()
    assert str(first.metadata["SAMPLE_ID"]) == "7"


@pytest.mark.parametrize("names", [("url", "caption"), ("URL", "TEXT"), ("image_url", "alt_text"), ("url", "alt")])
def test_the_columns_may_be_called_as_in_any_of_the_known_releases(tmp_path, names):
    rows = [dict(zip(names, ("https://x.example/a.jpg", "An a."), strict=True))]
    (document,) = documents(open_source(str(write(tmp_path, {"x.parquet": table_bytes(columns_of(rows))}))))
    assert outline(document) == ["<missing>", "An a."]


def test_one_bad_row_among_good_ones_is_one_fault(tmp_path):
    lines = [
        b'{"url": "https://x.example/1.jpg", "caption": "One."}',
        b'{"url": "https://x.exa',
        b'{"url": "https://x.example/\xe9.jpg", "caption": "Two."}',
        b'["no", "object"]',
        b'{"caption": "without"}',
        b'{"url": 5, "caption": "a number"}',
        b'{"url": "", "caption": "empty"}',
        b"",
        b"[" * 100_000,
        b'{"url": "https://x.example/3.jpg", "caption": {"not": "a text"}}',
    ]
    source = open_source(str(write(tmp_path, {"x.jsonl": b"\n".join(lines)})))
    assert [found.reason if isinstance(found, Fault) else "good" for found in everything(source)] == [
        "good",
        "bad_record",
        "good",
        *["bad_record"] * 5,
        *["good", "bad_record"],  # the caption is no text
    ]
    assert "expected an address in column 'url'" in faults(source)[2].detail


def test_bad_rows_of_a_csv_are_told_and_the_others_live(tmp_path):
    data = (
        b"url,caption\nhttps://x.example/1.jpg,One\n5,6,7\nhttps://x.example/2.jpg,caf\xe9\nhttps://x.example/3.jpg,T\n"
    )
    found = list(everything(open_source(str(write(tmp_path, {"x.csv": data})))))
    assert [item.reason if isinstance(item, Fault) else "good" for item in found] == [
        "good",
        "bad_record",
        "good",
        "good",
    ]
    assert [item.item if isinstance(item, Fault) else item.uri for item in found] == [
        f"{tmp_path}/x.csv#row={n}" for n in range(4)
    ]


def test_bad_utf8_and_impossible_dates_in_parquet_cost_their_row_only(tmp_path):
    texts = pa.array([b"good", b"caf\xe9", b"good"], pa.binary()).view(pa.string())
    urls = pa.array([f"https://x.example/{n}.jpg" for n in range(3)])
    days = pa.array([0, 0, 2**40], pa.int64()).cast(pa.timestamp("s"))
    table = table_bytes({"url": urls, "caption": texts, "day": days})
    found = list(everything(open_source(str(write(tmp_path, {"x.parquet": table})))))
    assert [item.reason if isinstance(item, Fault) else "good" for item in found] == [
        "good",
        "bad_encoding",
        "bad_record",
    ]


@examples(25)
@given(
    texts=st.lists(st.text(max_size=40), min_size=1, max_size=20),
    size=st.integers(8, 200),
    ending=st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_ranges_of_a_jsonl_file_give_every_line_once_wherever_they_are_cut(tmp_path_factory, texts, size, ending):
    folder = tmp_path_factory.mktemp("ranges")
    rows = [{"url": f"https://x.example/{n}", "caption": text} for n, text in enumerate(texts)]
    write(folder, {"x.jsonl": ending.join(json.dumps(row, ensure_ascii=False) for row in rows)})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "RANGE_BYTES", size)
        source = open_source(str(folder))
        units = source.units()
        found = sorted(p.url for unit in units for d in source.read(unit) for p in pictures(d))
    assert found == sorted(row["url"] for row in rows)
    assert len({unit.uri for unit in units}) == len({unit.etag for unit in units}) == len(units)


def test_a_cut_packed_table_keeps_what_came_before(tmp_path):
    rows = [{"url": f"https://x.example/{n}.jpg", "caption": f"{n} " * 20} for n in range(500)]
    data = gzip.compress(jsonl(rows))
    source = open_source(str(write(tmp_path, {"x.jsonl.gz": data[: len(data) // 2]})))
    assert 0 < len(documents(source)) < 500
    assert {fault.reason for fault in faults(source)} == {"bad_record", "truncated"}


STRUCT = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


def test_pictures_in_hugging_faces_structs_with_their_captions(tmp_path):
    table = {
        "image": pa.array([{"bytes": jpeg("red"), "path": "a.jpg"}, {"bytes": jpeg("blue"), "path": None}], STRUCT),
        "caption": pa.array([["One.", "Uno."], ["Two.", "Two."]]),
        "license": pa.array(["cc0", "cc-by"]),
        "crawled": pa.array([datetime.date(2024, 1, 2)] * 2),
    }
    source = open_source(str(write(tmp_path, {"train-0.parquet": table_bytes(table, row_group_size=1)})))
    first, second = documents(source)
    assert outline(first) == ["<train-0.parquet#row=0&path=a.jpg>", "One.", "Uno."]
    assert outline(second) == ["<train-0.parquet#row=1&picture=0>", "Two."]
    assert [p.data for d in (first, second) for p in pictures(d)] == [jpeg("red"), jpeg("blue")]
    assert first.metadata == {"license": "cc0", "crawled": "2024-01-02"}
    assert [unit.uri.rpartition("#")[2] for unit in source.units()] == ["row-group=0", "row-group=1"]


@pytest.mark.parametrize("name", ["image", "jpg", "image_bytes", "webp"])
def test_pictures_in_flat_binary_columns(tmp_path, name):
    table = {name: pa.array([jpeg(), b"", None]), "text": pa.array(["One.", "Two.", "Three."]),
             "url": pa.array(["https://x.example/1.jpg", None, "https://x.example/3.jpg"])}  # fmt: skip
    found = documents(open_source(str(write(tmp_path, {"x.parquet": table_bytes(table)}))))
    assert [outline(document)[0] for document in found] == ["<1.jpg>", "<empty>", "<missing>"]
    assert pictures(found[0])[0].alt_text == "One."
    assert "remote image" in pictures(found[2])[0].fault.detail


def test_lists_of_pictures_without_texts_beside_them(tmp_path):
    images = pa.array(
        [[{"bytes": jpeg("red"), "path": "1"}, {"bytes": jpeg("blue"), "path": "2"}], []], pa.list_(STRUCT)
    )
    source = open_source(str(write(tmp_path, {"x.parquet": table_bytes({"images": images})})))
    assert [[p.position for p in pictures(d)] for d in documents(source)] == [[0, 1]]
    assert [fault.reason for fault in faults(source)] == ["bad_record"]


REALSYN = {
    "raw_image_url": "https://x.example/a.jpg",
    "text1": "One.",
    "text2": "Two.",
    "text3": "Three.",
    "syn_text": "Made.",
}


@pytest.mark.parametrize(
    ("name", "data"), [("r.parquet", table_bytes(columns_of([REALSYN]))), ("r.csv", separated([REALSYN], ","))]
)
def test_the_realsyn_release_keeps_the_synthetic_text_apart(tmp_path, name, data):
    source = open_source(str(write(tmp_path, {name: data})))
    (document,) = documents(source)
    assert [unit.format for unit in source.units()] == ["realsyn"]
    assert outline(document) == ["<missing>", "One.", "Two.", "Three."]
    assert document.metadata == {"raw_image_url": REALSYN["raw_image_url"], "syn_text": "Made."}


def mmc4():
    return {
        "url": "https://x.example/page",
        "text_list": ["First.", "Second.", "Third."],
        "image_info": [
            {"image_name": "b.png", "raw_url": "https://x.example/b.png", "matched_text_index": 1, "matched_sim": 0.3},
            {"image_name": "a.jpg", "raw_url": "https://x.example/a.jpg", "matched_text_index": 0, "matched_sim": 0.2},
            {"image_name": "c.jpg", "raw_url": "https://x.example/c.jpg", "matched_text_index": 99},
        ],
        "similarity_matrix": [[0.1, 0.3, 0.1]] * 3,
        "could_have_url_duplicate": 0,
    }


def test_mmc4_puts_a_picture_before_its_text_and_takes_the_file_beside_it(tmp_path):
    files = {"d.jsonl": json.dumps(mmc4()), "a.jpg": jpeg("red"), "loose.jpg": jpeg()}
    source = open_source(str(write(tmp_path, files)))
    assert [unit.format for unit in source.units()] == ["mmc4", "image_folder"]
    document = documents(source)[0]
    assert outline(document) == ["<a.jpg>", "First.", "<missing>", "Second.", "Third.", "<missing>"]
    assert pictures(document)[0].data == jpeg("red")
    assert pictures(document)[1].url == "https://x.example/b.png"
    assert document.metadata["url"] == "https://x.example/page"
    assert document.metadata["image_info"][0]["matched_sim"] == 0.3


@pytest.mark.parametrize("name", ["d.jsonl.zip", "d.jsonl.gz"])
def test_mmc4_is_read_as_it_is_released_packed(tmp_path, name):
    lines = b"\n".join([json.dumps(mmc4()).encode()] * 3)
    data = zipped({"d.jsonl": lines}) if name.endswith("zip") else gzip.compress(lines)
    assert len(documents(open_source(str(write(tmp_path, {name: data}))))) == 3


@pytest.mark.parametrize("change", [{"text_list": None}, {"image_info": "x"}, {"text_list": [], "image_info": []}])
def test_an_mmc4_line_of_the_wrong_shape_is_a_bad_record(tmp_path, change):
    lines = "\n".join(json.dumps(row) for row in (mmc4(), mmc4() | change, mmc4()))
    found = list(everything(open_source(str(write(tmp_path, {"d.jsonl": lines})))))
    assert [isinstance(item, Document) for item in found] == [True, False, True]
    assert found[1].reason == "bad_record"


def test_a_table_of_no_known_shape_is_told_with_what_was_expected(tmp_path):
    write(tmp_path, {"x.csv": "a,b\n1,2\n", "y.parquet": b"PAR1 broken", "p.jpg": jpeg()})
    ignored = open_source(str(tmp_path)).ignored()
    assert [fault.reason for fault in ignored] == ["bad_record"] * 2
    assert "a column 'url'" in ignored[0].detail


@pytest.mark.parametrize("n_rows", [1, 3])
def test_damaged_size_statistics_are_a_fault_of_the_file_and_do_not_end_the_process(tmp_path, n_rows):
    good = table_bytes({"url": pa.array(["https://x.example/a.jpg"] * n_rows), "caption": pa.array(["A."] * n_rows)})
    at = good.rindex(OPTIONAL, 0, good.rindex(b"caption"))
    write(tmp_path, {"a.parquet": good[:at] + REQUIRED + good[at + 2 :], "b.parquet": good})
    source = open_source(str(tmp_path))
    (fault,) = faults(source)
    assert (fault.item, fault.reason) == (f"{tmp_path}/a.parquet#row-group=0", "bad_record")
    assert "histogram size mismatch" in fault.detail
    assert len(documents(source)) == n_rows


@pytest.mark.parametrize(
    ("lines", "captions"),
    [
        (['{0},"open', "{1},two", '{2},a "big" cat'], ['"open', "two", 'a "big" cat']),
        (['{0},"open', "{1},two", '{2},24"'], ['"open', "two", '24"']),
        (['{0},"quoted" by Bob', '{1},"closed"'], ['"quoted" by Bob', "closed"]),
        (['{0},"two', 'lines, and more"', "{1},x"], ["two\nlines, and more", "x"]),
        (['{0},"a ""pair""', 'and ""another"""', '{1},"last'], ['a "pair"\nand "another"', '"last']),
        (['"{0}","x, y"', "{1},"], ["x, y", ""]),
        (['{0},"blanks behind"  ', '"{1}" ,"x"'], ["blanks behind", "x"]),
    ],
)
@pytest.mark.parametrize("separator", [",", "\t"])
def test_a_quotation_mark_that_nobody_closes_is_a_letter_and_a_row_is_a_row(tmp_path, lines, captions, separator):
    urls = [f"https://x.example/{n}.jpg" for n in range(3)]
    name = "t.csv" if separator == "," else "t.tsv"
    write(tmp_path, {name: "\n".join(["url,caption", *lines]).format(*urls).replace(",", separator)})
    found = documents(source := open_source(str(tmp_path)))
    wanted = [caption.replace(",", separator) for caption in captions]
    assert [document.metadata["url"] for document in found] == urls[: len(wanted)]
    assert [outline(document)[1:] for document in found] == [
        [" ".join(line.split()) for line in caption.splitlines()] for caption in wanted
    ]
    assert not faults(source)


def test_many_open_marks_cost_no_more_than_their_share(monkeypatch):
    """Each of these lines looks for the end of its mark through all lines behind it, until that was in vain enough."""
    looked = []
    look = text_rows._Lines.look
    monkeypatch.setattr(text_rows, "MOST_IN_VAIN", 10_000)
    monkeypatch.setattr(text_rows._Lines, "look", lambda lines: (looked.append(each) or each for each in look(lines)))
    file = io.BufferedReader(io.BytesIO(b"a,b\n" + b'"a,"b\n' * 2000))  # pyright: ignore[reportArgumentType]
    found = list(text_rows._read_separated(file, ",", "t"))
    assert [row for _, row in found] == [{"a": '"a', "b": '"b'}] * 2000
    assert sum(map(len, looked)) < 3 * 10_000


@given(st.lists(st.lists(st.text('ab ",\n\t1é', max_size=6), min_size=2, max_size=2), min_size=1, max_size=4))
def test_what_the_csv_module_writes_is_read_as_it_was(rows):
    data = separated([{"one": one, "two": two} for one, two in rows], ",")
    found = text_rows._read_separated(io.BufferedReader(io.BytesIO(data)), ",", "t")
    assert [list(row[1].values()) if isinstance(row, tuple) else row for row in found] == rows


def test_the_message_about_a_row_names_its_line(tmp_path):
    write(tmp_path, {"t.csv": b'url,caption\nhttps://x.example/a.jpg,"two\nlines"\nhttps://x.example/b.jpg,a,b\n'})
    (fault,) = faults(open_source(str(tmp_path)))
    assert fault.detail.startswith("line 4: 3 fields")


VIEWED = pa.struct([("bytes", pa.binary_view()), ("path", pa.string_view())])
# The types in which DataFusion, DuckDB, polars, pandas and `datasets` store a picture and a caption.
HELD_AS = {
    "binary": pa.array([jpeg()]),
    "binary_view": pa.array([jpeg()], pa.binary_view()),
    "large_binary": pa.array([jpeg()], pa.large_binary()),
    "fixed_size_binary": pa.array([jpeg()], pa.binary(len(jpeg()))),
    "struct of views": pa.array([{"bytes": jpeg(), "path": None}], VIEWED),
    "list of structs": pa.array([[{"bytes": jpeg(), "path": None}]]),
}
CAPTIONED_AS = {
    "string_view": pa.array(["A caption."], pa.string_view()),
    "large_string": pa.array(["A caption."], pa.large_string()),
    "dictionary": pa.array(["A caption."]).dictionary_encode(),
    "bytes": pa.array([b"A caption."]),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["A caption."])),
    "list": pa.array([["A caption."]]),
    "list of views": pa.array([["A caption."]], pa.list_(pa.string_view())),
    "list_view": pa.array([["A caption."]], pa.list_view(pa.string())),
    "large_list": pa.array([["A caption."]], pa.large_list(pa.string())),
    "fixed_size_list": pa.array([["A caption."]], pa.list_(pa.string(), 1)),
}


@pytest.mark.parametrize(
    ("held", "caption"),
    [(each, "string_view") for each in HELD_AS] + [("struct of views", each) for each in CAPTIONED_AS],
)
def test_pictures_and_captions_are_read_from_every_type_that_others_store_them_in(tmp_path, held, caption):
    write(tmp_path, {"t.parquet": table_bytes({"image": HELD_AS[held], "caption": CAPTIONED_AS[caption]})})
    source = open_source(str(tmp_path))
    (document,) = documents(source)
    assert [pictures(document)[0].data, *outline(document)[1:]] == [jpeg(), "A caption."]
    assert not faults(source)


def test_a_caption_in_bytes_is_decoded_as_a_file_is_and_each_that_is_no_text_is_told(tmp_path):
    captions = ["Café.".encode("cp1252"), jpeg(), b"", jpeg(), "Ein Café in Zürich.".encode()]
    columns = {"image": pa.array([jpeg()] * 5), "caption": pa.array(captions)}
    source = open_source(str(write(tmp_path, {"t.parquet": table_bytes(columns)})))
    assert [outline(document)[1:] for document in documents(source)] == [["Café."], [], [], [], ["Ein Café in Zürich."]]
    told = faults(source)
    assert [(each.reason, each.item.rpartition("row=")[2]) for each in told] == [
        ("bad_encoding", "1"),
        ("bad_encoding", "3"),
    ]


@pytest.mark.parametrize("caption", [{"en": "A."}, [{"raw": "A."}], 5])
def test_a_caption_that_is_no_text_is_one_fault_beside_the_pictures(tmp_path, caption):
    write(tmp_path, {"t.parquet": table_bytes({"image": pa.array([jpeg()] * 3), "caption": pa.array([caption] * 3)})})
    source = open_source(str(tmp_path))
    assert [len(pictures(document)) for document in documents(source)] == [1, 1, 1]
    (fault,) = faults(source)
    assert (fault.reason, "column 'caption' is no text" in fault.detail) == ("bad_record", True)


def test_a_picture_without_bytes_is_read_from_its_path_beside_the_table_or_is_a_link(tmp_path):
    images = [{"bytes": None, "path": path} for path in ("img/a.jpg", "https://x.example/b.jpg", "img/none.jpg")]
    held = pa.array(images, pa.struct([("bytes", pa.binary()), ("path", pa.string())]))
    write(tmp_path, {"t/img/a.jpg": jpeg(), "t/t.parquet": table_bytes({"image": held})})
    found = [pictures(each)[0] for each in documents(open_source(str(tmp_path))) if "t.parquet#" in each.uri]
    assert [each.data for each in found] == [jpeg(), b"", b""]
    assert [is_link(each) for each in found] == [False, True, False]
    assert found[2].fault and found[2].fault.item == f"{tmp_path}/t/img/none.jpg"


def test_a_parquet_file_without_row_groups_is_an_empty_part(tmp_path):
    schema = pa.schema([("image", pa.binary()), ("caption", pa.string())])
    pq.ParquetWriter(tmp_path / "t.parquet", schema).close()
    source = open_source(str(tmp_path))
    assert (len(source.units()), list(everything(source))) == (1, [])


def test_a_line_break_in_a_text_of_mmc4_ends_it(tmp_path):
    write(tmp_path, {"m.jsonl": json.dumps({"text_list": ["One bird\na beak", "Two."], "image_info": []})})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document) == ["One bird", "a beak", "Two."]
