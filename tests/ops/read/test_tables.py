"""Tables of pictures in every shape that people have them, and rows that have none."""

import datetime
import gzip
import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.fault import Fault
from pairmill.ops.read.records import tables
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
    assert outline(second) == ["<missing>", 'B, "quoted" on lines.']
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
        "good",
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
