import io
import json
import random

import pyarrow as pa
import pytest
import webdataset
from PIL import Image

from pairmill.ops.fault import Fault
from pairmill.ops.read.source import open_source
from tests.worlds.packed import sample, tar
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, table_bytes, write

COLOURS = ["red", "green", "blue", "white", "black"]


def samples():
    return [
        sample(f"0000{n}", jpeg(colour), f"A {colour} one.", url=f"https://x.example/{n}.jpg", sha256=f"{n}" * 64)
        for n, colour in enumerate(COLOURS)
    ]


@pytest.mark.parametrize("mode", ["w", "w:gz"])
def test_samples_as_img2dataset_writes_them(tmp_path, mode):
    write(tmp_path, {f"00000.tar{'.gz' if 'gz' in mode else ''}": tar([m for s in samples() for m in s], mode)})
    found = documents(open_source(str(tmp_path)))
    assert [outline(document) for document in found] == [[f"<{n}.jpg>", f"A {c} one."] for n, c in enumerate(COLOURS)]
    (picture,) = pictures(found[2])
    assert (picture.data, picture.alt_text, picture.url) == (jpeg("blue"), "A blue one.", "https://x.example/2.jpg")
    assert (found[2].metadata["sha256"], found[2].metadata["key"]) == ("2" * 64, "00002")


def test_the_members_of_a_sample_may_stand_anywhere(tmp_path):
    members = [member for each in samples() for member in each]
    write(tmp_path / "a", {"0.tar": tar(members)})
    random.Random(3).shuffle(members)
    write(tmp_path / "b", {"0.tar": tar(members)})
    first, second = (
        {d.uri.rpartition("#")[2]: (outline(d), pictures(d)[0].data) for d in documents(open_source(f"{tmp_path}/{f}"))}
        for f in "ab"
    )
    assert first == second


def test_a_tar_of_the_webdataset_library_is_read(tmp_path):
    with webdataset.TarWriter(str(tmp_path / "x.tar")) as writer:
        for n, colour in enumerate(COLOURS):
            writer.write({"__key__": f"deep/{n}", "png": Image.new("RGB", (9, 7), colour), "txt": colour, "cls": n})
    found = documents(open_source(str(tmp_path)))
    assert [document.uri.rpartition("#")[2] for document in found] == [f"deep/{n}" for n in range(5)]
    assert [item.text for document in found for item in document.items[1:]] == COLOURS


def test_the_sidecar_gives_metadata_and_what_could_not_be_fetched(tmp_path):
    table = {
        "key": pa.array(["00000", "00001"]),
        "url": pa.array(["https://x.example/0.jpg", "https://x.example/gone.jpg"]),
        "caption": pa.array(["Zero.", "Gone."]),
        "status": pa.array(["success", "failed_to_download"]),
        "error_message": pa.array([None, "HTTP Error 404"]),
    }
    files = {"0.tar": tar([("00000.webp", jpeg())]), "0.parquet": table_bytes(table), "0_stats.json": "{}"}
    source = open_source(str(write(tmp_path, files)))
    assert (len(source.units()), source.ignored()) == (1, [])
    first, gone = documents(source)
    assert outline(first) == ["<0.jpg>", "Zero."]
    (picture,) = pictures(gone)
    assert (picture.url, picture.alt_text) == ("https://x.example/gone.jpg", "Gone.")
    assert picture.fault and picture.fault.reason == "missing"
    assert picture.fault.detail == "remote image: not fetched (HTTP Error 404)"


def test_a_changed_sidecar_is_a_changed_unit(tmp_path):
    write(tmp_path, {"0.tar": tar(samples()[0]), "0.parquet": table_bytes({"key": pa.array(["a"])})})
    before = open_source(str(tmp_path)).units()
    write(tmp_path, {"0.parquet": table_bytes({"key": pa.array(["a", "b"])})})
    after = open_source(str(tmp_path)).units()
    assert before[0].uri == after[0].uri and before[0].etag != after[0].etag


def test_broken_json_and_samples_without_anything_do_not_cost_their_neighbours(tmp_path):
    members = [("a.jpg", jpeg()), ("a.json", "{broken"), ("b.npy", b"123"), *samples()[0]]
    found = list(everything(open_source(str(write(tmp_path, {"0.tar": tar(members)})))))
    assert [f.reason if isinstance(f, Fault) else outline(f)[0] for f in found] == [
        "<0.tar#a.jpg>",
        "bad_record",
        "<0.jpg>",
    ]


def pages(*colours):
    out = io.BytesIO()
    first, *rest = [Image.new("RGB", (12, 8), colour) for colour in colours]
    first.save(out, "TIFF", save_all=True, append_images=rest)
    return out.getvalue()


def test_an_interleaved_sample_takes_the_pages_of_its_tiff_in_order(tmp_path):
    about = {
        "texts": ["Before.", None, "Between.", None],
        "images": [None, "page_0_image_85", None, "page_5_image_1"],
        "image_metadata": [{"page": 0, "width": 12}, {"page": 5, "width": 12}],
        "url": "https://x.example/paper.pdf",
        "language_id_whole_page_fasttext": {"en": 0.9},
    }
    members = [("k.tiff", pages("red", "blue")), ("k.json", json.dumps(about)), ("l.jpg", jpeg())]
    document, _ = documents(open_source(str(write(tmp_path, {"0.tar": tar(members)}))))
    assert outline(document) == ["Before.", "<0.tar#k.page_0_image_85>", "Between.", "<0.tar#k.page_5_image_1>"]
    shown = [Image.open(io.BytesIO(picture.data)).convert("RGB").getpixel((0, 0)) for picture in pictures(document)]
    assert shown == [(255, 0, 0), (0, 0, 255)]
    assert document.metadata["url"] == about["url"] and len(document.metadata["image_metadata"]) == 2


def test_an_interleaved_samples_pictures_may_be_members_or_addresses(tmp_path):
    about = {"texts": ["T.", None, None, None], "images": [None, "one", "https://x.example/a.jpg", "gone.jpg"]}
    members = [("k.json", json.dumps(about)), ("k.one.jpg", jpeg("green"))]
    (document,) = documents(open_source(str(write(tmp_path, {"0.tar": tar(members)}))))
    assert outline(document) == ["T.", "<0.tar#k.one.jpg>", "<missing>", "<missing>"]
    assert pictures(document)[1].url == "https://x.example/a.jpg"


@pytest.mark.parametrize("about", [{"texts": ["a"], "images": []}, {"texts": [], "images": []}])
def test_an_interleaved_sample_of_the_wrong_shape_is_a_bad_record(tmp_path, about):
    members = [("k.json", json.dumps(about)), *samples()[0]]
    source = open_source(str(write(tmp_path, {"0.tar": tar(members)})))
    assert [fault.reason for fault in faults(source)] == ["bad_record"]
    assert len(documents(source)) == 1


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["IMG_1.2.jpg", "IMG_1.2.txt", "IMG_1.3.jpg", "IMG_1.3.txt"], [["<>", "IMG_1.2.txt"], ["<>", "IMG_1.3.txt"]]),
        (["IMG_1.2.jpg", "IMG_1.2.txt"], [["<>", "IMG_1.2.txt"]]),
        (["s0.image.jpg", "s0.caption.txt"], [["<>", "s0.caption.txt"]]),
        (["s0.left.jpg", "s0.right.png", "s0.txt"], [["<>", "<>", "s0.txt"]]),
        (["s0.left.jpg", "s0.left.txt", "s0.right.jpg", "s0.txt"], [["<>", "<>", "s0.txt", "s0.left.txt"]]),
        (["s0.image.jpg", "s0.image.txt", "s0.mask.png"], [["<>", "<>", "s0.image.txt"]]),
        (["s0.jpg", "s0.txt", "s0.json", "s1.jpg"], [["<>", "s0.txt"], ["<>"]]),
        (["s0.jpg", "s0.cls", "s1.jpg", "s1.cls"], [["<>"], ["<>"], "2 members '.cls' (s0.cls, …)"]),
        (["s0.jpg", "s0.JPG"], ["a second member '.JPG' of its sample", ["<>"]]),
    ],
)
def test_no_member_of_a_sample_goes_unread_without_a_row_whatever_the_dots_in_its_name(tmp_path, names, wanted):
    content = {"jpg": jpeg(), "png": jpeg(), "json": "{}"}
    members = [(name, content.get(name.lower().rpartition(".")[2], name)) for name in names]
    found = everything(open_source(str(write(tmp_path, {"0.tar": tar(members)}))))
    told = [
        each.detail if isinstance(each, Fault) else ["<>" if text.startswith("<") else text for text in outline(each)]
        for each in found
    ]
    assert len(told) == len(wanted)
    assert all(a.startswith(b) if isinstance(b, str) else a == b for a, b in zip(told, wanted, strict=True))


@pytest.mark.parametrize("name", ["a.txt", "a.json", "0.parquet"])
def test_captions_are_read_line_by_line_and_from_lists(tmp_path, name):
    data: dict[str, str | bytes] = {
        "a.txt": "one bird\r\na beak\u2028\n\non a branch\n",
        "a.json": json.dumps({"caption": ["one bird\na beak", None, "on a branch"]}),
        "0.parquet": table_bytes({"key": pa.array(["a"]), "caption": pa.array([["one bird", "a beak\non a branch"]])}),
    }
    members = [("a.jpg", jpeg()), *([(name, data[name])] if name.startswith("a") else [])]
    write(tmp_path, {"0.tar": tar(members), **({} if name.startswith("a") else {name: data[name]})})
    (document,) = documents(open_source(str(tmp_path)))
    assert outline(document)[1:] == ["one bird", "a beak", "on a branch"]
    assert pictures(document)[0].alt_text.startswith("one bird")
