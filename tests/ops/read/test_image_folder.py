from pairmill.ops.read.source import open_source
from tests.worlds.samples import documents, faults, jpeg, outline, pictures, write


def test_each_picture_is_a_document_and_its_text_file_its_caption(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(), "a.txt": "A red \n square.\n", "sub/b.PNG": b"broken", "note.txt": "nobody's"})
    source = open_source(str(tmp_path))
    first, second = documents(source)
    assert (first.title, outline(first)) == ("a", ["<a.jpg>", "A red", "square."])
    assert [(p.alt_text, p.data, p.position) for p in pictures(first)] == [("A red square.", jpeg(), 0)]
    assert (second.title, outline(second)) == ("b", ["<b.PNG>"])
    assert left(source) == [("not_an_image", "note.txt")]


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


def left(source):
    """Reason and name of every file that gave no document."""
    found = [*faults(source), *source.ignored()]
    return sorted((fault.reason, fault.item.rpartition("/")[2]) for fault in found)


def test_a_picture_is_one_by_its_bytes_whatever_it_is_called(tmp_path):
    names = ("a1b2c3d4e5", "photo.img", "photo.jpg.1", "note.txt")
    write(tmp_path, {name: jpeg() for name in names} | {"named.jpg": jpeg(), "really.md": "words", "nil": b""})
    source = open_source(str(tmp_path))
    assert [outline(document) for document in documents(source)] == [
        ["<a1b2c3d4e5>"], ["<named.jpg>"], ["<note.txt>"], ["<photo.img>"], ["<photo.jpg.1>"],
    ]  # fmt: skip
    assert left(source) == [("not_an_image", "nil"), ("not_an_image", "really.md")]


def test_a_folder_in_which_no_file_has_a_pictures_name_is_a_source(tmp_path):
    write(tmp_path, {"a1b2": jpeg(), "c3d4": jpeg("blue")})
    assert [len(pictures(document)) for document in documents(open_source(str(tmp_path)))] == [1, 1]


def test_beside_a_picture_without_a_name_stand_files_of_its_whole_name(tmp_path):
    files = {"a1b2": jpeg(), "a1b2.txt": "A caption.", "x.1": jpeg(), "x.1.json": '{"caption": "Another."}'}
    write(tmp_path, files | {"x.txt": "nobody's", "bundle": b"no picture", "bundle.txt": "text", "bundle.json": jpeg()})
    source = open_source(str(tmp_path))
    assert [outline(document) for document in documents(source)] == [
        ["<a1b2>", "A caption."], ["<bundle.json>"], ["<x.1>", "Another."],
    ]  # fmt: skip
    assert left(source) == [("not_an_image", "bundle"), ("not_an_image", "bundle.txt"), ("not_an_image", "x.txt")]


def test_what_stands_beside_a_picture_is_its_text_only_if_it_is_text(tmp_path):
    noise = bytes(range(256)) * 20
    files = {"a.jpg": jpeg(), "a.txt": jpeg(), "b.jpg": jpeg(), "b.txt": noise, "c.jpg": jpeg(), "c.json": jpeg()}
    source = open_source(str(write(tmp_path, files)))
    assert [outline(document) for document in documents(source)] == [["<a.jpg>"], ["<b.jpg>"], ["<c.jpg>"]]
    assert left(source) == [("bad_encoding", "a.txt"), ("bad_encoding", "b.txt"), ("bad_encoding", "c.json")]


def test_a_cameras_own_file_is_not_taken_for_the_thumbnail_in_it(tmp_path):
    source = open_source(str(write(tmp_path, {"a.jpg": jpeg(), "b.NEF": b"MM\0*" + bytes(500)})))
    assert [outline(document) for document in documents(source)] == [["<a.jpg>"]]
    assert left(source) == [("not_an_image", "b.NEF")]


def test_hidden_files_are_not_read_and_each_has_its_reason(tmp_path):
    files = {"a.jpg": jpeg(), ".hidden.jpg": jpeg(), "._a.jpg": b"\0\5\x16\7", ".DS_Store": b"\0", ".git/a.jpg": jpeg()}
    source = open_source(str(write(tmp_path, files | {"Thumbs.db": b"\xd0\xcf"})))
    assert [outline(document) for document in documents(source)] == [["<a.jpg>"]]
    hidden = [("left_out", name) for name in (".DS_Store", "._a.jpg", ".git", ".hidden.jpg")]
    assert left(source) == [*hidden, ("not_an_image", "Thumbs.db")]
