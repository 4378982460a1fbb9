import os
import pickle
import tracemalloc

import pytest

from pairmill.ops.read.places.tree import MAX_BYTES, LocalTree
from pairmill.ops.read.source import SourceError, Unit, open_source
from tests.worlds.samples import documents, everything, faults, jpeg, outline, pictures, table_bytes, write


def names(found):
    return [item.rpartition("/")[2] for item in found]


def mixed(folder):
    return write(
        folder,
        {
            "html/page.html": "<img src=shown.jpg><img src='../photos/shown too.jpg'><p>Text.",
            "html/shown.jpg": jpeg(),
            "html/loose.png": jpeg(),
            "html/style.css": "p {}",
            "photos/a.jpg": jpeg(),
            "photos/a.txt": "A caption.",
            "photos/shown too.jpg": jpeg(),
            "photos/drawing.svg": "<svg/>",
            "README.md": "read me",
            ".git/config": "hidden",
            ".hidden.jpg": jpeg(),
        },
    )


def test_a_mixed_tree_gives_pages_and_the_pictures_that_no_page_shows(tmp_path):
    units = open_source(str(mixed(tmp_path))).units()
    assert [(unit.uri.rpartition("/")[2], unit.format) for unit in units] == [
        ("README.md", "image_folder"),  # by its bytes it is none, which the worker sees that reads it
        ("loose.png", "image_folder"),
        ("page.html", "html_folder"),
        ("style.css", "image_folder"),
        ("a.jpg", "image_folder"),
        ("drawing.svg", "image_folder"),
    ]


def test_every_file_is_in_a_document_a_unit_or_the_ignored_list(tmp_path):
    source = open_source(str(mixed(tmp_path)))
    seen = {picture.url for document in documents(source) for picture in pictures(document)}
    left = [*source.ignored(), *faults(source)]
    seen |= {document.uri for document in documents(source)} | {fault.item for fault in left}
    files = {str(path) for path in tmp_path.rglob("*") if path.is_file()}
    assert files - seen == {str(tmp_path / name) for name in ("photos/a.txt", ".git/config")}  # a caption; see .git
    assert {(fault.reason, fault.item.rpartition("/")[2]) for fault in left} == {
        ("left_out", ".git"), ("left_out", ".hidden.jpg"), ("not_an_image", "README.md"), ("not_an_image", "style.css"),
    }  # fmt: skip


def test_a_picture_in_two_sizes_is_one_picture_of_its_page_and_no_document_of_its_own(tmp_path):
    html = "<img src=a.jpg srcset='a-2x.jpg 2x'>"
    write(tmp_path, {"page.html": html, "a.jpg": jpeg(), "a-2x.jpg": jpeg(), "b.jpg": jpeg()})
    by_name = {document.uri.rpartition("/")[2]: document for document in documents(open_source(str(tmp_path)))}
    assert list(by_name) == ["b.jpg", "page.html"]
    assert names(each.url for each in pictures(by_name["page.html"])) == ["a.jpg"]


def test_a_named_format_takes_only_its_own_files(tmp_path):
    source = open_source(f"image_folder:{mixed(tmp_path)}")
    assert names(unit.uri for unit in source.units()) == [
        "README.md",
        "loose.png",
        "shown.jpg",
        "style.css",
        "a.jpg",
        "drawing.svg",
        "shown too.jpg",
    ]
    assert "page.html" in names(fault.item for fault in source.ignored())


def test_the_listing_is_sorted_and_the_same_twice(tmp_path):
    mixed(tmp_path)
    first, second = open_source(str(tmp_path)).units(), open_source(str(tmp_path)).units()
    assert first == second == sorted(first, key=lambda unit: unit.uri)
    assert len({unit.uri for unit in first}) == len(first)


def test_a_changed_file_or_caption_has_another_etag_and_the_others_keep_theirs(tmp_path):
    mixed(tmp_path)
    before = {unit.uri: unit.etag for unit in open_source(str(tmp_path)).units()}
    (tmp_path / "photos/a.txt").write_text("Another caption.")
    os.utime(tmp_path / "html/page.html", ns=(1, 1))
    after = {unit.uri: unit.etag for unit in open_source(str(tmp_path)).units()}
    assert names(uri for uri in before if before[uri] != after[uri]) == ["page.html", "a.jpg"]


def test_a_page_has_another_etag_when_a_picture_that_it_shows_changes_goes_or_comes(tmp_path):
    write(tmp_path, {"a.html": "<p>a</p><img src=x.jpg><img src=y.jpg>", "b.html": "<p>b</p>", "x.jpg": jpeg("red")})
    seen = [etags(tmp_path)]
    for change in (lambda: write(tmp_path, {"x.jpg": jpeg("blue", (9, 9))}), lambda: write(tmp_path, {"y.jpg": jpeg()}),
                   lambda: (tmp_path / "x.jpg").unlink()):  # fmt: skip
        change()
        seen.append(etags(tmp_path))
    pages = [{name.rpartition("/")[2]: etag for name, etag in each.items()} for each in seen]
    assert len({each["a.html"] for each in pages}) == 4 and len({each["b.html"] for each in pages}) == 1


def etags(folder):
    return {unit.uri: unit.etag for unit in open_source(str(folder)).units()}


def test_a_source_pickles_small_and_reads_the_same_elsewhere(tmp_path):
    source = open_source(str(mixed(tmp_path)))
    units = source.units()
    copy = pickle.loads(pickle.dumps(source))
    assert len(pickle.dumps(source)) < 1000
    assert [list(copy.read(unit)) for unit in units] == [list(source.read(unit)) for unit in units]
    assert copy.units() == units


def test_one_file_is_a_source_too(tmp_path):
    write(tmp_path, {"page.html": "<img src=a.jpg>", "a.jpg": jpeg(), "other.html": "x"})
    (document,) = documents(open_source(f"file://{tmp_path}/page.html"))
    assert [picture.data for picture in pictures(document)] == [jpeg()]


def test_links_out_of_the_source_and_linked_folders_are_told_not_followed(tmp_path):
    write(tmp_path, {"secret.jpg": jpeg(), "site/a.jpg": jpeg(), "site/sub/b.jpg": jpeg()})
    site = tmp_path / "site"
    (site / "out.jpg").symlink_to(tmp_path / "secret.jpg")
    (site / "loop").symlink_to(site)
    (site / "gone.jpg").symlink_to(site / "nothing.jpg")
    (site / "same.jpg").symlink_to(site / "a.jpg")
    source = open_source(str(site))
    assert names(unit.uri for unit in source.units()) == ["a.jpg", "same.jpg", "b.jpg"]
    assert [
        (name, fault.reason)
        for name, fault in zip(names(f.item for f in source.ignored()), source.ignored(), strict=True)
    ] == [
        ("gone.jpg", "missing"),
        ("loop", "unsafe_path"),
        ("out.jpg", "unsafe_path"),
    ]


def test_a_file_that_became_a_link_out_after_the_listing_is_not_read(tmp_path):
    write(tmp_path, {"secret.jpg": jpeg(), "site/a.jpg": jpeg()})
    source = open_source(str(tmp_path / "site"))
    units = source.units()
    (tmp_path / "site/a.jpg").unlink()
    (tmp_path / "site/a.jpg").symlink_to(tmp_path / "secret.jpg")
    (document,) = documents(source, units)
    (picture,) = pictures(document)
    assert picture.fault and picture.fault.reason == "unsafe_path"


def test_names_that_are_not_utf8_and_special_files_are_told(tmp_path):
    write(tmp_path, {"a.jpg": jpeg()})
    (tmp_path / os.fsdecode(b"caf\xe9.jpg")).write_bytes(jpeg())
    os.mkfifo(tmp_path / "pipe.jpg")
    source = open_source(str(tmp_path))
    assert names(unit.uri for unit in source.units()) == ["a.jpg"]
    assert [fault.reason for fault in source.ignored()] == ["bad_encoding", "bad_record"]
    assert all(fault.item.encode() for fault in source.ignored())


def test_a_pipe_that_a_page_names_or_that_a_picture_became_holds_nobody_up(tmp_path):
    write(tmp_path, {"page.html": '<p>A fox.</p><img src="pipe.jpg"><img src="a.jpg">', "a.jpg": jpeg()})
    os.mkfifo(tmp_path / "pipe.jpg")
    source = open_source(str(tmp_path))
    units = source.units()
    (tmp_path / "a.jpg").unlink()
    os.mkfifo(tmp_path / "a.jpg")
    (document,) = documents(source, units)
    told = [picture.fault for picture in pictures(document)]
    assert [(each.reason, each.detail) for each in told if each] == [
        ("missing", "cannot be read: it is no regular file")
    ] * 2
    (tmp_path / "page.html").unlink()
    os.mkfifo(tmp_path / "page.html")
    assert [each.detail for each in everything(source, units)] == ["cannot be read: it is no regular file"]


def test_a_file_too_large_for_a_worker_is_refused_unread(tmp_path):
    write(tmp_path, {"a.jpg": jpeg(), "page.html": ""})
    for name in ("a.jpg", "page.html"):
        os.truncate(tmp_path / name, MAX_BYTES + 1)  # sparse: takes no space
    source = open_source(str(tmp_path))
    assert [fault.reason for fault in faults(source)] == ["too_large"]
    (document,) = documents(source)
    assert outline(document) == ["<too_large>"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: str(folder / "gone"), "there is no such file or folder; check the path"),
        (lambda folder: str(folder), "is empty; give a folder, a file or a prefix that holds pages"),
        (lambda folder: str(write(folder, {"a.css": ""})), r"'a.css' is nothing that is read; give pages \(.html\)"),
        (
            lambda folder: str(write(folder, {"a.css": "", "b": ""})),
            r"none of its 2 files \(a.css, …\) is anyth",
        ),
        (
            lambda folder: str(write(folder, {"a.csv": "link,text\na,b\n"})),
            "'a.csv' cannot be read; its columns are link, text",
        ),
        (lambda folder: "s3//bucket/x", "did you mean s3://bucket/x"),
        (lambda folder: "https:/host/x.csv", "did you mean https://host/x.csv"),
        (lambda folder: str(write(folder, {"pages/a.html": "a"}) / "pagse"), "did you mean '.*/pages'"),
        (lambda folder: "gopher://x", "'gopher://' is not read; give a local path, s3://bucket/prefix"),
        (lambda folder: "", "an empty name; give a folder or a file"),
        (lambda folder: "~nobody-here/x", "check the path"),
        (lambda folder: "y" * 300, "too long.*check the path"),
    ],
)
def test_a_source_that_cannot_be_used_says_why_and_the_remedy(tmp_path, make, message):
    uri = make(tmp_path)
    with pytest.raises(SourceError, match=message) as error:
        open_source(uri).units()
    assert uri[:200] in str(error.value)


def test_an_unknown_format_names_the_known_ones(tmp_path):
    with pytest.raises(SourceError, match=r"no format is called 'pdf'; known are warc, html_archive, .*image_folder"):
        open_source(f"pdf:{tmp_path}")


def test_a_format_may_stand_before_the_place(tmp_path):
    write(tmp_path, {"page.html": "<p>A page.", "a.jpg": jpeg(), "odd:name.jpg": jpeg(), "html_folder:x/b.jpg": jpeg()})
    pages = open_source(f"html_folder:{tmp_path}")
    assert [unit.format for unit in pages.units()] == ["html_folder"]
    assert (pages.uri, pages.units()) == (
        f"html_folder:{tmp_path}",
        open_source(f"html_folder:{tmp_path}").units(),
    )
    assert len(open_source(str(tmp_path)).units()) == 4
    assert len(open_source(f"image_folder:file://{tmp_path}/a.jpg").units()) == 1
    # A path that is there is a path.
    assert len(open_source(f"{tmp_path}/odd:name.jpg").units()) == 1


def test_a_source_is_called_the_same_however_its_place_is_spelled(tmp_path, monkeypatch):
    write(tmp_path, {"pages/page.html": "<p>A page.", "other/page.html": "<p>Another."})
    (tmp_path / "linked").symlink_to(tmp_path / "pages")
    monkeypatch.chdir(tmp_path / "other")
    pages = str(tmp_path / "pages")
    for spelled in (pages, f"{pages}/", "../pages", "../pages/", "../linked", f"file://{pages}"):
        assert open_source(spelled).uri == pages
        assert open_source(f"html_folder:{spelled}").uri == f"html_folder:{pages}"
        assert open_source(f"{spelled.rstrip('/')}/page.html").uri == f"{pages}/page.html"
    assert open_source(".").uri == str(tmp_path / "other")
    assert open_source(open_source("html_folder:../pages").uri).units() == open_source("html_folder:../pages").units()


def test_a_path_that_looks_like_a_format_is_a_path_when_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(write(tmp_path, {"html_folder:x/b.jpg": jpeg(), "x/page.html": "<p>A page."}))
    assert [unit.format for unit in open_source("html_folder:x").units()] == ["image_folder"]
    assert [unit.format for unit in open_source("html_folder:./x").units()] == ["html_folder"]


@pytest.mark.parametrize("place", ["s3://bucket/x", "pages", "https://x.example/list.parquet", "/x"])
def test_an_unknown_format_before_the_place_names_the_nearest(place):
    with pytest.raises(SourceError, match=r"no format is called 'obelix'; did you mean 'obelics'\?"):
        open_source(f"obelix:{place}")


def test_a_folder_that_may_not_be_read_is_told(tmp_path, monkeypatch):
    write(tmp_path, {"a.jpg": jpeg(), "closed/b.jpg": jpeg()})
    scandir = os.scandir

    def refusing(path):
        if str(path).rstrip("/").endswith("closed"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)  # the tests may run as root, who may read everything
    source = open_source(str(tmp_path))
    assert names(unit.uri for unit in source.units()) == ["a.jpg"]
    assert [fault.detail for fault in source.ignored()] == ["cannot be listed: Permission denied"]


def test_parquet_pages_and_pictures_live_in_one_tree(tmp_path):
    import pyarrow as pa

    table = table_bytes({"images": pa.array([["beside.jpg"]]), "texts": pa.array([[None]], pa.list_(pa.string()))})
    write(tmp_path, {"t.parquet": table, "beside.jpg": jpeg(), "loose.jpg": jpeg(), "page.html": "x"})
    units = open_source(str(tmp_path)).units()
    assert isinstance(units[0], Unit)
    assert names(unit.uri for unit in units) == ["loose.jpg", "page.html", "t.parquet#row-group=0"]


def test_a_small_file_takes_no_more_memory_than_its_bytes(tmp_path):
    (tmp_path / "page.html").write_bytes(b"x" * 1000)
    tree = LocalTree(str(tmp_path))
    tracemalloc.start()
    assert tree.read("page.html") == b"x" * 1000
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1_000_000
