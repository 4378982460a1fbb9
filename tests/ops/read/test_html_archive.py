import tarfile

import pytest

from pairmill.ops.read.source import open_source
from tests.worlds.packed import tar, zipped
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, write

SITE = {
    "site/index.html": "<title>T</title><p>Before.</p><img src=img/a.jpg alt='An a.'><p>After.</p>",
    "site/img/a.jpg": jpeg("red"),
    "site/img/loose.png": jpeg("blue"),
}


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("site.zip", zipped(SITE)),
        ("site.tar", tar(list(SITE.items()))),
        ("site.tar.gz", tar(list(SITE.items()), "w:gz")),
        ("site.tgz", tar(list(SITE.items()), "w:gz", tarfile.GNU_FORMAT)),
    ],
)
def test_pages_in_an_archive_are_read_as_from_the_folder_it_unpacks_to(tmp_path, name, data):
    write(tmp_path / "packed", {name: data})
    write(tmp_path / "unpacked", SITE)
    source = open_source(str(tmp_path / "packed"))
    page, loose = documents(source)
    assert outline(page) == ["Before.", "<" + pictures(page)[0].url.rpartition("/")[2] + ">", "After."]
    assert (page.title, pictures(page)[0].alt_text, pictures(page)[0].data) == ("T", "An a.", jpeg("red"))
    assert page.uri == f"{tmp_path}/packed/{name}#site/index.html"
    assert pictures(loose)[0].data == jpeg("blue")
    on_disk = documents(open_source(f"{tmp_path}/unpacked"))
    assert sorted(p.data for d in on_disk for p in pictures(d)) == sorted(
        p.data for d in (page, loose) for p in pictures(d)
    )
    assert [unit.format for unit in source.units()] == ["html_archive"]


def test_a_zip_of_pictures_alone_is_read_too(tmp_path):
    write(tmp_path, {"p.zip": zipped({"a.jpg": jpeg(), "a.txt": "A caption.", "notes.md": "x"})})
    (document, left) = everything(open_source(str(tmp_path)))
    assert outline(document) == ["<p.zip#a.jpg>", "A caption."]
    assert (left.reason, left.item) == ("not_an_image", f"{tmp_path}/p.zip#notes.md")


def test_references_out_of_the_archive_and_unsafe_members_are_faults(tmp_path):
    page = "<img src='../../secret.jpg'><img src='a.jpg'>"
    files = {"x/p.html": page, "x/a.jpg": jpeg(), "../up.jpg": jpeg(), "/etc/abs.jpg": jpeg(), "..\\w.jpg": jpeg()}
    write(tmp_path, {"a.zip": zipped(files), "b.tar": tar(list(files.items())), "secret.jpg": jpeg("green")})
    for name in ("a.zip", "b.tar"):
        source = open_source(f"{tmp_path}/{name}")
        assert [fault.reason for fault in faults(source)] == ["unsafe_path"] * 3
        (document,) = documents(source)
        assert [p.fault.reason if p.fault else p.data for p in pictures(document)] == ["unsafe_path", jpeg()]


@pytest.mark.parametrize(
    ("codec", "name"),
    [
        ("utf-8", "写真/größe.jpg"),  # as macOS packs
        ("cp437", "Übersicht/Größe ½.jpg"),
        ("cp932", "新しいフォルダー/富士山.jpg"),
        ("gb18030", "我的图片/长城的照片.jpg"),
        ("cp866", "Новая папка/кошка.jpg"),
    ],
)
def test_names_in_a_zip_without_the_utf8_flag_are_read_in_their_encoding(tmp_path, codec, name):
    raw = name.encode(codec)
    placeholder = "x" * len(raw)
    packed = zipped({"p.html": f"<meta charset=utf-8><img src='{name}'><p>One.", placeholder: jpeg()})
    write(tmp_path, {"a.zip": packed.replace(placeholder.encode(), raw)})
    (document,) = documents(open_source(str(tmp_path)))
    assert (outline(document)[1], pictures(document)[0].data) == ("One.", jpeg())
    assert pictures(document)[0].url == f"{tmp_path}/a.zip#{name}"
