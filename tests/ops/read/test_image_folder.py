from ops.read.source import open_source
from tests.ops.read.samples import documents, jpeg, outline, pictures, write


def test_each_picture_is_a_document_and_its_text_file_its_caption(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(), "a.txt": "A red \n square.\n", "sub/b.PNG": b"broken", "note.txt": "nobody's"})
    source = open_source(str(tmp_path))
    first, second = documents(source)
    assert (first.title, outline(first)) == ("a", ["<a.jpg>", "A red square."])
    assert [(p.alt_text, p.data, p.position) for p in pictures(first)] == [("A red square.", jpeg(), 0)]
    assert (second.title, outline(second)) == ("b", ["<b.PNG>"])
    assert [fault.item for fault in source.ignored()] == [str(tmp_path / "note.txt")]


def test_two_pictures_of_one_stem_share_the_caption(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(), "a.png": jpeg(), "a.txt": "shared"})
    assert [pictures(document)[0].alt_text for document in documents(open_source(str(tmp_path)))] == [
        "shared",
        "shared",
    ]


def test_a_caption_in_an_old_encoding_or_empty_does_no_harm(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(), "a.txt": "café".encode("cp1252"), "b.jpg": jpeg(), "b.txt": " \n"})
    assert [outline(document) for document in documents(open_source(str(tmp_path)))] == [
        ["<a.jpg>", "café"],
        ["<b.jpg>"],
    ]


def test_an_empty_file_is_told_in_its_place(tmp_path):
    write(tmp_path, {"a.jpg": b"", "b.jpg": jpeg()})
    empty, good = documents(open_source(str(tmp_path)))
    assert outline(empty) == ["<empty>"]
    assert outline(good) == ["<b.jpg>"]
