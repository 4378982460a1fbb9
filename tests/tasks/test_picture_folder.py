"""The folder for small trainers: names, captions, what `datasets` and trainers' layouts read, what stays the user's."""

import errno
import json
import os
import shutil
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.terms.mark import MARK
from pairmill.flows.api.opened_lake import OpenLake
from pairmill.flows.command.removals import _describe_takedown
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export.destination import Destination, ExportFile
from pairmill.tasks.release.export.export import check_place, export
from pairmill.tasks.release.export.export_forms import gather, text_choice
from pairmill.tasks.release.export.picture_folder import RECORD, FolderOptions, PictureFolder, Placing, in_bucket
from pairmill.tasks.release.export.pictures import exported
from tests.tasks.test_loaded_exports import hub
from tests.worlds.published import picture, published

__all__ = ["hub"]  # a fixture

N = 9
# The suffixes that kohya's sd-scripts, ai-toolkit and OneTrainer list; each reads `STEM.txt` beside the picture.
TRAINED = (".jpg", ".jpeg", ".png", ".webp", ".bmp")
ADDRESSES = ("cats/A.jpg", "cats/a.PNG", "cats/a.jpg", "t.tar#x/../.h/1.png", "t.parquet#row=7&path=/own/n_test1.webp",
             "https://example.org/p/b.jpg?size=2", "p.html#image=3", "dogs/x.jpg/y.jpg", "dogs/x.jpg")  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("foldered") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    with create_or_open(place) as lake:
        lake.execute("UPDATE documents SET uri = 'a page'")
        images = [image for (image,) in lake.query("SELECT image_id FROM pairs ORDER BY image_id")]
        for image, address in zip(images, ADDRESSES, strict=True):
            lake.execute("UPDATE pairs SET raw_image_url = ? WHERE image_id = ?", (address, image))
    return place


@pytest.fixture
def lake(folder: Path, tmp_path: Path) -> Iterator[Lake]:
    shutil.copytree(folder, tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as opened:
        yield opened


def read_by_trainers(place: Path) -> dict[str, list[str]]:
    """Read pictures and captions as the trainers' documented layouts: recursively, hidden names left out."""
    pictures = [path for path in place.rglob("*.*") if path.suffix.lower() in TRAINED]
    seen = [path.relative_to(place) for path in pictures if not any(part[0] == "." for part in path.parts[1:])]
    return {str(path): (place / path).with_suffix(".txt").read_text().splitlines() for path in sorted(seen)}


def test_names_are_the_sources_own_and_none_clash_without_case_or_suffix(lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path / "out"), "folder")
    found = read_by_trainers(tmp_path / "out")
    assert len(found) == N and len({name.rsplit(".", 1)[0].lower() for name in found}) == N
    own = {name for name in found if "-" not in name.rsplit("/", 1)[-1]}
    assert own == {"cats/A.jpg", "t.tar/x/h/1.png", "own/n_test1.webp", "example.org/p/b.jpg", "dogs/x_jpg/y.jpg",
                   "dogs/x.jpg", next(name for name in found if name.startswith("p.html/image=3."))}  # fmt: skip
    held = {(tmp_path / "out" / name).read_bytes() for name in found}
    assert held == {picture(n) for n in range(N)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "options", "lines"),
    [
        ("caption", {"trigger": "sks"}, ["sks, A coloured field."]),
        ("caption", {"trigger": "field", "prefix": "A photo: ", "suffix": " 8k"}, ["A photo: A coloured field. 8k"]),
        ("each(caption, alt_text)", {"trigger": "sks"}, ["sks, A coloured field.", "sks, a picture"]),
        ("tags", {}, ["field"]),
    ],
)
def test_captions_are_lines_with_trigger_prefix_and_suffix(lake: Lake, tmp_path: Path, text, options, lines):
    found = export(lake, "small", 1, str(tmp_path / "out"), "folder", text=text, options=FolderOptions(**options))
    assert set(map(tuple, read_by_trainers(tmp_path / "out").values())) == {tuple(lines)}
    assert (found.rows, found.files) == (N, 2 * N)


def test_datasets_reads_every_picture_with_its_text(lake: Lake, tmp_path: Path, hub):
    export(lake, "small", 1, str(tmp_path / "out"), "folder", text="caption")
    rows = hub.load_dataset("imagefolder", data_dir=str(tmp_path / "out"), data_files="**", split="train")
    assert {(row["text"], row["caption_source"]) for row in rows} == {("A coloured field.", "main")}
    assert sorted(row["image"].size for row in rows) == sorted((30 + 10 * n, 60 + n) for n in range(N))


@pytest.mark.slow
def test_a_repeated_export_keeps_what_is_the_users_and_a_takedown_reaches_what_is_not(lake: Lake, tmp_path: Path):
    place = tmp_path / "out"
    export(lake, "small", 1, str(place), "folder", text="caption")
    first, second, third, *_ = sorted(read_by_trainers(place))
    edited, gone = (place / first).with_suffix(".txt"), place / second
    edited.write_text("mine")
    (place / "notes.txt").write_text("notes")
    (place / third).unlink()
    found = export(lake, "small", 1, str(place), "folder", text="caption")
    assert "1 files of the folder are yours" in found.notes[0] and (place / third).exists()
    image = next(row for row in map(json.loads, (place / "metadata.jsonl").open()) if row["file_name"] == second)
    lake.execute("DELETE FROM pairs WHERE image_id = ?", (image["image_id"],))
    lake.execute("UPDATE datasets SET amended = true, content_digest = 'other', n_pairs = n_pairs - 1")
    export(lake, "small", 1, str(place), "folder", text="caption")
    assert not gone.exists() and not gone.with_suffix(".txt").exists()
    assert (
        second not in (place / "metadata.jsonl").read_text()
        and second not in (place / RECORD / "SHA256SUMS").read_text()
    )
    assert edited.read_text() == "mine" and (place / "notes.txt").read_text() == "notes"


def test_a_killed_export_goes_on_behind_what_it_wrote(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(of_dataset, "TAR_ROWS", 4)

    def kill(done: int, total: int) -> None:
        if done >= 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export(lake, "small", 1, str(tmp_path / "out"), "folder", progress=kill)
    assert len(read_by_trainers(tmp_path / "out")) == 4 and not (tmp_path / "out/metadata.jsonl").exists()
    times = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.jpg")}
    export(lake, "small", 1, str(tmp_path / "out"), "folder")
    assert len(read_by_trainers(tmp_path / "out")) == N
    assert all(path.stat().st_mtime_ns == time for path, time in times.items())


def local(lake: Lake, source: Path) -> None:
    """Give all pairs files of a local source, one of them changed since."""
    rows = lake.query("SELECT image_id, document_id, sha256 FROM pairs ORDER BY image_id")
    data = {content_id(picture(n)): picture(n) for n in range(N)}
    source.mkdir()
    lake.execute("DELETE FROM documents")
    for place, (image, document, sha256) in enumerate(rows):
        (source / f"{place}.jpg").write_bytes(data[sha256] if place else b"changed")
        lake.execute("UPDATE pairs SET raw_image_url = ? WHERE image_id = ?", (f"{place}.jpg", image))
        lake.execute(
            "INSERT INTO documents BY NAME SELECT ? AS document_id, ? AS uri, ? AS source",
            (document, f"{source}/{place}.jpg", str(source)),
        )


@pytest.mark.slow
@pytest.mark.parametrize("way", ["link", "stay"])
def test_pictures_of_a_local_source_are_linked_or_stay(lake: Lake, tmp_path: Path, way: Placing, monkeypatch):
    source = tmp_path / "source"
    local(lake, source)
    place = tmp_path / "out" if way == "link" else source
    (source / "1.txt").write_text("own")
    found = export(lake, "small", 1, str(place), "folder", text="caption", options=FolderOptions(way))
    is_link = way == "link"
    assert (place / "2.jpg").samefile(source / "2.jpg") and (place / "2.txt").read_text() == "A coloured field."
    assert (place / "1.txt").read_text() == ("A coloured field." if is_link else "own")
    assert (found.rows, (source / "0.jpg").read_bytes()) == (N - (not is_link), b"changed")
    assert ("copied" if is_link else "left out") in " ".join(found.notes)
    if is_link:

        def refuse(*_: object) -> None:
            raise OSError(errno.EXDEV, "Invalid cross-device link")

        monkeypatch.setattr(os, "link", refuse)
        with pytest.raises(PairmillError, match=r"different disks\. Give --to a folder on the disk"):
            export(lake, "small", 1, str(tmp_path / "b"), "folder", options=FolderOptions(way))


@pytest.mark.parametrize(
    ("format", "options", "why"),
    [
        ("webdataset", {"trigger": "sks"}, "--trigger is for --format folder"),
        ("folder", {"pictures": "link", "bucket": 512}, "--bucket 512 writes resized copies"),
        ("folder", {"bucket": 5}, "give 64 pixels or more"),
        ("folder", {"pictures": "hardlink"}, "--pictures hardlink: there are copy, link, stay"),
        ("webdataset", {"metadata": "exif"}, "--metadata exif: there are stripped, original"),
        ("folder", {"shuffle": 1}, "--shuffle has no order"),
        ("folder", {"pictures": "stay"}, "give the source's folder to --to"),
    ],
)
def test_what_makes_no_folder_is_told_with_the_remedy(lake: Lake, tmp_path: Path, format, options, why: str):
    with pytest.raises(PairmillError, match=why):
        OpenLake(lake).export("small", str(tmp_path / "out"), format, **options)
    assert not (tmp_path / "out").exists()


def test_a_bucket_has_sides_in_steps_and_is_not_enlarged():
    for size in ((1000, 500), (70, 90), (3000, 100)):
        out = BytesIO()
        Image.new("RGB", size).save(out, "JPEG")
        made = Image.open(BytesIO(in_bucket(out.getvalue(), 256)))
        assert all(side % 64 == 0 for side in made.size) and made.format == "JPEG"
        assert made.width * made.height <= max(256 * 256, 64 * 64) or 64 in made.size


LIST = "small-v1-000000.jsonl"
RED, BLUE, GREEN = b"red", b"blue", b"green"


def row_of(file: Path, data: bytes, caption: str = "A field.") -> dict[str, Any]:
    """Write ``data`` to ``file`` unless it is there; return the row of an export with that picture and file name."""
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(data)
    return {"file_name": file.name, "local": str(file), "sha256": content_id(data), "image_id": content_id(data),
            "caption": caption, "captioner": "main", "data": data}  # fmt: skip


def written(place: Path, rows: list[dict[str, Any]], pictures: Any = "copy", until: int = 99) -> list[str]:
    """Write ``rows`` as one list, killed before picture ``until``; return the notes of the finished folder."""
    folder = PictureFolder(Destination(str(place)), Destination(f"{place}/{RECORD}"), FolderOptions(pictures))

    def pictured(left: list[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], bytes]]:
        for n, row in enumerate(left):
            if n == until:
                raise KeyboardInterrupt
            yield from exported([(row, row["data"])], "stripped")

    folder.record.prepare()
    folder.begin()
    with folder.record.file(LIST) as out:
        n = folder.write(rows, lambda row: {"caption": row["caption"]} if row["caption"] else {}, pictured, out)
    folder.finish([cast(ExportFile, out).written(LIST, n)])
    return list(PictureFolder(folder.place, folder.record, folder.options).notes(n))  # as a repeated export tells


def test_a_link_follows_its_name_to_another_picture_unless_the_file_is_the_users(tmp_path: Path):
    red, blue, own = (row_of(tmp_path / "source" / f"{name}.jpg", name.encode()) for name in ("red", "blue", "own"))
    place = tmp_path / "out"
    written(place, [red, own], "link")
    (place / "own.jpg").unlink()
    (place / "own.jpg").write_bytes(b"edited")
    assert "1 files" in written(place, [blue | {"file_name": "red.jpg"}, own], "link")[0]
    assert (place / "red.jpg").samefile(tmp_path / "source/blue.jpg")
    assert (place / "own.jpg").read_bytes() == b"edited"
    assert " own.jpg" not in (place / RECORD / "SHA256SUMS").read_text()


def test_a_link_to_a_symbolic_link_is_a_link_to_its_file(tmp_path: Path):
    row_of(tmp_path / "source/a.jpg", RED)
    (tmp_path / "source/b.jpg").symlink_to("a.jpg")
    written(tmp_path / "out", [row_of(tmp_path / "source/b.jpg", RED)], "link")
    assert not (tmp_path / "out/b.jpg").is_symlink() and (tmp_path / "out/b.jpg").read_bytes() == RED


def test_a_caption_of_the_users_that_equals_ours_stays_the_users(tmp_path: Path):
    row = row_of(tmp_path / "a.jpg", RED)
    (tmp_path / "a.txt").write_text("A field.")
    assert not written(tmp_path, [row], "stay")
    assert "1 files" in written(tmp_path, [row | {"caption": "Another."}], "stay")[0]
    written(tmp_path, [], "stay")
    assert (tmp_path / "a.txt").read_text() == "A field."


def test_of_pictures_that_share_a_caption_file_the_first_has_it(tmp_path: Path):
    rows = [row_of(tmp_path / "a.jpg", RED, "Red."), row_of(tmp_path / "a.png", BLUE, "Blue.")]
    for _ in range(2):
        assert [note[:38] for note in written(tmp_path, rows, "stay")] == ["1 pictures have the name of another bu"]
        assert (tmp_path / "a.txt").read_text() == "Red."
        assert [json.loads(line)["text"] for line in (tmp_path / "metadata.jsonl").open()] == ["Red."]


def test_a_takedown_reaches_what_a_killed_export_wrote(tmp_path: Path):
    rows = [row_of(tmp_path / f"source/{data.decode()}.jpg", data) for data in (RED, GREEN, BLUE)]
    place = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        written(place, rows, until=2)
    assert (place / "red.txt").exists() and not (place / RECORD / LIST).exists()
    (place / "green.txt").write_text("edited")
    assert "1 files" in written(place, rows[2:])[0]
    assert {path.name for path in place.glob("[!.]*.*")} == {"blue.jpg", "blue.txt", "green.txt", "metadata.jsonl"}


def test_a_repeated_export_tells_that_there_are_no_texts_only_if_there_are_none(tmp_path: Path):
    row = row_of(tmp_path / "source/a.jpg", RED)
    assert not written(tmp_path / "out", [row])
    assert "no picture has this text" in written(tmp_path / "out", [row | {"caption": ""}])[0]


def test_the_source_of_a_text_is_the_captioner_or_the_column(lake: Lake, tmp_path: Path):
    row = {"caption": "A", "text1": "B", "alt_text": "", "image_id": "1"}
    assert text_choice("each(caption, text1, alt_text)").texts_of(row) == {"caption": "A", "text1": "B"}
    export(lake, "small", 1, str(tmp_path / "out"), "folder", text="each(alt_text, caption)")
    rows = list(map(json.loads, (tmp_path / "out/metadata.jsonl").open()))
    assert {each["caption_source"] for each in rows} == {"alt_text, main"}


def test_names_fit_every_file_system(lake: Lake):
    long = {"\U0001f98a" * 80 + ".jpg": "\U0001f98a" * 50 + ".jpg", "x" * 300 + "/b.png": "x" * 50 + "/b.png",
            "a.jpg.part/c.jpg": "a.jpg_part/c.jpg", "CON.jpg": "_CON.jpg", "aux/Lpt1.old.png": "_aux/_Lpt1.old.png",
            "d./e /f.jpg": "d/e/f.jpg", f"{'y' * 48}. {'z' * 200}/g.jpg": "y" * 48 + "/g.jpg",
            "console.jpg": "console.jpg", "deep/" * 200 + "h.jpg": ""}  # fmt: skip
    lake.execute("UPDATE documents SET uri = 'a page'")
    images = [image for (image,) in lake.query("SELECT image_id FROM pairs ORDER BY image_id")]
    for image, address in zip(images, long, strict=True):
        lake.execute("UPDATE pairs SET raw_image_url = ? WHERE image_id = ?", (address, image))
    gather(lake, Selection((datasets.find(lake, "small"),)), "folder", text_choice("text1"), None, False, "")
    names = dict(lake.query("SELECT raw_image_url, file_name FROM export_rows"))
    assert names == long | {"deep/" * 200 + "h.jpg": f"{images[-1]}.jpg"}


@pytest.mark.parametrize(
    ("held", "asked", "told"),
    [
        ({"version": 1}, {"version": 2}, None),
        ({"version": 1, "pictures": "stay"}, {"version": 2, "pictures": "stay"}, None),
        ({"text": "a"}, {"pictures": "stay"}, "Give another folder, or delete '.*pairmill-folder'"),
        ({"pictures": "stay"}, {}, r"Give another folder\.$"),
        ({"text": "a"}, {}, "or empty this one"),
    ],
)
def test_no_remedy_endangers_the_users_own_pictures(tmp_path: Path, held: dict, asked: dict, told: str | None):
    place, of = Destination(f"{tmp_path}/{RECORD}"), {"lake": "l", "dataset": "small", "format": "folder"}
    place.prepare()
    place.write_json(MARK, of | held)
    lake = cast(Lake, SimpleNamespace(data_path="/none/"))
    if told:
        with pytest.raises(PairmillError, match=told):
            check_place(place, lake, of | asked, of | asked, False)
    else:
        check_place(place, lake, of | asked, of | asked, False)


@pytest.mark.parametrize(("format", "is_told"), [("folder", False), ("webdataset", True)])
def test_a_takedown_does_not_tell_to_delete_a_folder_of_pictures(format: str, is_told: bool):
    report = {"versions": [], "exports": [{"uri": "/p", "dataset": "small@1", "format": format}]}
    assert ("delete it" in next(_describe_takedown(report))) == is_told
