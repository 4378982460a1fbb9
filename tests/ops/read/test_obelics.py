import json

import pyarrow as pa
import pytest

from pairmill.ops.fault import Fault
from pairmill.ops.read.source import Document, open_source
from tests.worlds.parallel_lists import STRINGS, lists
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, table_bytes, write

STRUCTS = pa.list_(pa.struct([("bytes", pa.binary()), ("path", pa.string())]))


def test_texts_and_pictures_alternate_as_the_parallel_lists_say(tmp_path):
    table = table_bytes(
        {
            "images": lists(["a.jpg", None, None, "sub/b.jpg"]),
            "texts": lists([None, "First paragraph.\nStill it.\n\nSecond  one.", None, None]),
            "metadata": pa.array([json.dumps([{"alt_text": " An  a. "}, None, None, {"alt": "A b."}])]),
            "general_metadata": pa.array([json.dumps({"url": "https://x.example/", "title": "T"})]),
        }
    )
    write(tmp_path, {"t/x.parquet": table, "t/a.jpg": jpeg("red"), "t/sub/b.jpg": jpeg("blue")})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document) == ["<a.jpg>", "First paragraph. Still it.", "Second one.", "<b.jpg>"]
    assert [(p.position, p.alt_text, p.data) for p in pictures(document)] == [
        (0, "An a.", jpeg("red")),
        (1, "A b.", jpeg("blue")),
    ]
    assert (document.title, document.metadata["url"]) == ("T", "https://x.example/")
    assert document.uri == str(tmp_path / "t/x.parquet#row=0")


def test_embedded_bytes_are_taken_from_a_column_beside_or_from_structs(tmp_path):
    address = "https://x.example/a.jpg"
    beside = table_bytes(
        {
            "images": lists([address, None]),
            "texts": lists([None, "x"]),
            "image_bytes": lists([jpeg(), None], kind=pa.list_(pa.binary())),
        }
    )
    inside = table_bytes(
        {
            "images": lists([{"bytes": jpeg(), "path": address}, None, {"bytes": None, "path": None}], kind=STRUCTS),
            "texts": lists([None, "x", None]),
        }
    )
    write(tmp_path, {"1.parquet": beside, "2.parquet": inside})
    first, second = documents(open_source(str(tmp_path)))
    assert outline(first) == ["<a.jpg>", "x"]
    assert outline(second) == ["<a.jpg>", "x", "<missing>"]
    assert [p.url for p in pictures(first)] == [address]
    assert pictures(first)[0].data == pictures(second)[0].data == jpeg()


def test_addresses_without_bytes_and_unsafe_paths_are_faults_in_their_places(tmp_path):
    images = ["https://x.example/a.jpg", "gone.jpg", "../../secret.jpg", "", None]
    table = table_bytes({"images": lists(images), "texts": lists([None] * 4 + ["kept"])})
    write(tmp_path, {"t.parquet": table})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document) == ["<missing>", "<missing>", "<unsafe_path>", "<missing>", "kept"]


@pytest.mark.parametrize(
    ("images", "texts", "reason"),
    [
        (["a.jpg"], [None, "one too many"], "bad_record"),
        (None, ["x"], "bad_record"),
        (["a.jpg"], None, "bad_record"),
        ([], [], "bad_record"),
        ([None], [None], "bad_record"),
    ],
)
def test_a_bad_row_is_a_fault_and_its_neighbours_live(tmp_path, images, texts, reason):
    table = table_bytes({"images": lists([None], images, [None]), "texts": lists(["before"], texts, ["after"])})
    write(tmp_path, {"t.parquet": table})
    found = list(everything(open_source(str(tmp_path))))
    assert [item.reason if isinstance(item, Fault) else outline(item)[0] for item in found] == [
        "before",
        reason,
        "after",
    ]
    assert isinstance(found[1], Fault) and found[1].item.endswith("t.parquet#row=1")


def test_a_text_that_is_not_utf8_is_bad_encoding_and_its_neighbours_live(tmp_path):
    texts = lists([b"before"], [b"caf\xe9"], [b"after"], kind=pa.list_(pa.binary())).view(STRINGS)
    write(tmp_path, {"t.parquet": table_bytes({"images": lists([None], [None], [None]), "texts": texts})})
    found = list(everything(open_source(str(tmp_path))))
    assert [item.reason if isinstance(item, Fault) else outline(item)[0] for item in found] == [
        "before",
        "bad_encoding",
        "after",
    ]


def test_half_letters_in_metadata_do_not_reach_the_tables(tmp_path):
    metadata = pa.array(['[{"alt_text": "a\\ud800b", "src": "x\\udc00"}]'])
    columns = {"images": lists([""]), "texts": lists([None]), "metadata": metadata}
    write(tmp_path, {"t.parquet": table_bytes(columns | {"general_metadata": pa.array(['{"title": "t\\ud800"}'])})})
    (document,) = documents(open_source(str(tmp_path)))
    assert (document.title, [(p.alt_text, p.url) for p in pictures(document)]) == ("t", [("ab", "x")])
    assert json.dumps(document.metadata, ensure_ascii=False).encode()


@pytest.mark.parametrize(
    "metadata", ["{broken", "null", '{"n": NaN}', "[" * 100_000, '{"a": 1}', '["x"]', '[{"alt_text": 5}]', None]
)
def test_metadata_of_any_shape_does_no_harm(tmp_path, metadata):
    columns = {
        "images": lists(["a.jpg"]),
        "texts": lists([None]),
        "metadata": pa.array([metadata], pa.string()),
        "general_metadata": pa.array([metadata], pa.string()),
    }
    write(tmp_path, {"t.parquet": table_bytes(columns), "a.jpg": jpeg()})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document) == ["<a.jpg>"]


def test_a_unit_is_a_row_group_with_an_etag_of_its_own(tmp_path):
    rows = [[f"text {row}"] for row in range(250)]
    table = table_bytes({"images": lists(*[[None]] * 250), "texts": lists(*rows)}, row_group_size=100)
    write(tmp_path, {"t.parquet": table})
    source = open_source(str(tmp_path))
    units = source.units()
    assert [unit.uri.rpartition("/")[2] for unit in units] == [f"t.parquet#row-group={group}" for group in range(3)]
    assert len({unit.etag for unit in units}) == 3
    last = [document for document in source.read(units[2]) if isinstance(document, Document)]
    assert [document.uri.rpartition("#")[2] for document in last] == [f"row={row}" for row in range(200, 250)]
    assert [outline(document) for document in documents(source)] == rows


def test_a_damaged_table_is_a_fault_and_the_others_are_read(tmp_path):
    good = table_bytes({"images": lists([None]), "texts": lists(["x" * 1000])})
    body = bytearray(good)
    body[10:200] = bytes(190)
    write(
        tmp_path,
        {"a.parquet": b"PAR1 no table PAR1", "b.parquet": bytes(body), "c.parquet": good, "d.parquet": good[:-9]},
    )
    source = open_source(str(tmp_path))
    assert [fault.reason for fault in faults(source)] == ["bad_record"] * 3
    assert len(documents(source)) == 1


def test_tables_of_another_shape_are_not_taken_for_documents(tmp_path):
    write(tmp_path, {"t.parquet": table_bytes({"name": pa.array(["x"]), "texts": pa.array(["y"])}), "page.html": "x"})
    source = open_source(str(tmp_path))
    assert {unit.format for unit in source.units()} == {"html_folder"}
    assert [fault.item for fault in source.ignored()] == [str(tmp_path / "t.parquet")]


def test_a_row_as_its_card_shows_it_keeps_what_it_says_of_itself_and_its_pictures(tmp_path):
    src = "https://cdn.x.example/a.jpg"
    said = {"document_url": "https://x.example/p", "unformatted_src": src, "src": src, "formatted_filename": "a",
            "alt_text": "An a.", "original_width": 1920, "original_height": 1080, "format": "jpeg"}  # fmt: skip
    about = {"url": "https://x.example/p", "warc_filename": "crawl/x.warc.gz", "warc_record_offset": 322560850}
    columns = {
        "images": lists([src, None]),
        "metadata": pa.array([json.dumps([said, None])]),
        "general_metadata": pa.array([json.dumps(about)]),
        "texts": lists([None, "A text.\n\nAnother."]),
        "language": pa.array(["en"]),
    }
    write(tmp_path, {"t.parquet": table_bytes(columns)})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document) == ["<missing>", "A text.", "Another."]
    assert document.metadata == {**about, "language": "en", "images": [said]}
    (picture,) = pictures(document)
    assert (picture.url, picture.alt_text) == (src, "An a.")
    assert picture.fault and picture.fault.detail.startswith("remote image: not fetched")


def test_beside_tables_of_the_right_shape_one_without_the_columns_is_a_fault(tmp_path):
    good = table_bytes({"images": lists([None]), "texts": lists(["x"])})
    write(tmp_path, {"a.parquet": good, "b.parquet": table_bytes({"texts": lists(["y"])})})
    assert [fault.reason for fault in faults(open_source(str(tmp_path)))] == ["bad_record"]


def test_the_end_mark_of_the_release_ends_a_text_and_is_cut(tmp_path):
    texts = lists(["First part. END_OF_DOCUMENT_TOKEN_TO_BE_REPLACED\nSecond part.", None])
    write(tmp_path, {"x.parquet": table_bytes({"images": lists([None, "https://x.example/a.jpg"]), "texts": texts})})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document) == ["First part.", "Second part.", "<missing>"]
