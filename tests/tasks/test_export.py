"""Exports: what a training loop reads back, equal bytes for equal versions, and never a half that looks whole."""

import hashlib
import io
import json
import os
import tarfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

import pairmill as pm
from pairmill.catalog.cut.cut import cut
from pairmill.catalog.cut.publication import publish
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.compare.trial_cut import cut_plan
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.terms.error import LeaseHeld, PairmillError
from pairmill.catalog.terms.ids import text_id
from pairmill.catalog.terms.text_columns import RELEASED, of_version
from pairmill.catalog.write import lease
from pairmill.ops.read.source import open_source
from pairmill.ops.whole.components import components
from pairmill.tasks.release.export.destination import Destination, ExportFile
from pairmill.tasks.release.export.export import TAR_BYTES, UNRECORDED, export, spans
from pairmill.tasks.release.export.export_forms import Format
from tests.worlds.data_bucket import bucket
from tests.worlds.published import REALSYN, picture, published
from tests.worlds.samples import write

__all__ = ["bucket"]  # a fixture

N = 14
# What tells a trainer how far to trust a text; this recipe fuses none.
SHOWN = {"caption_status": "ok", "synthetic_status": None, "similarity1": 0.5, "similarity2": 0.4, "similarity3": 0.3,
         "best_similarity": 0.5, "caption_similarity": 0.55, "synthetic_similarity": None}  # fmt: skip

OWN = of_version(RELEASED)  # the columns of a version with three texts a pair


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("exported") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    return place


@pytest.fixture
def lake(folder: Path):
    with create_or_open(folder) as opened:
        yield opened


@pytest.fixture
def small_tars(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pairmill.tasks.release.export.export.TAR_ROWS", 4)


def files(place: Path) -> dict[str, bytes]:
    """Every file of an export but for its mark, its card, and what describes its files once more."""
    left_out = (".pairmill", "README.md", "SHA256SUMS", ".croissant.json")
    return {path.name: path.read_bytes() for path in sorted(place.iterdir()) if path.name not in left_out}


def samples(data: bytes) -> dict[str, dict[str, bytes]]:
    """As WebDataset groups: neighbours of one name up to the first dot are a sample."""
    found: dict[str, dict[str, bytes]] = {}
    previous = ""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            key, extension = member.name.split(".", 1)
            assert key == previous or key not in found, "the files of a sample stand side by side"
            found.setdefault(key, {})[extension] = tar.extractfile(member).read()  # pyright: ignore
            assert (member.mtime, member.uid, member.gid, member.uname, member.mode) == (0, 0, 0, "", 0o644)
            previous = key
    return found


def test_each_sample_is_the_picture_the_first_text_and_all_columns(lake: Lake, tmp_path: Path):
    found = export(lake, "small", None, str(tmp_path / "out"))
    written = files(tmp_path / "out")
    assert list(written) == [".manifest.json", "small-v1-000000.tar"]
    read = samples(written["small-v1-000000.tar"])
    assert (found.files, found.rows, found.bytes) == (1, N, len(written["small-v1-000000.tar"]))
    for n in range(N):
        sample = read[text_id("image", str(n))]
        assert set(sample) == {"jpg", "json", "txt"}
        assert sample["jpg"] == picture(n)
        assert sample["txt"] == b"A red fox sleeps in the sun."
        pair = json.loads(sample["json"])
        with Image.open(io.BytesIO(sample["jpg"])) as image:
            assert (pair["width"], pair["height"]) == image.size
        assert pair["similarity1"] == 0.5 and pair["tags"] == ["field"] and pair["version"] == 1
        assert {name: pair[name] for name in SHOWN} == SHOWN
    with create_or_open(lake.uri, read_only=True) as reader:
        (pair,) = reader.table(f"SELECT {OWN} FROM pairs WHERE image_id = ?", (text_id("image", "3"),)).to_pylist()
    added = {"exported_sha256": pair["sha256"], "picture_metadata": "stripped"}
    assert json.loads(read[text_id("image", "3")]["json"]) == pair | added


@pytest.mark.parametrize("typo", ["s3:/bucket/x", "S3://bucket/x", "gs://bucket/x", "s3:bucket", "s3://"])
def test_what_is_nearly_an_address_is_no_folder(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typo: str):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PairmillError, match=r"two slashes, or \./"):
        export(lake, "small", None, typo)
    assert not list(tmp_path.iterdir())
    assert Destination("./s3:/bucket").uri == str(tmp_path / "s3:/bucket")


def test_two_exports_of_one_version_have_equal_bytes(lake: Lake, tmp_path: Path, small_tars: None):
    for name in ("a", "b"):
        export(lake, "small", 1, str(tmp_path / name))
    assert files(tmp_path / "a") == files(tmp_path / "b")


def test_the_manifest_counts_and_digests_every_file(lake: Lake, tmp_path: Path, small_tars: None):
    export(lake, "small", 1, str(tmp_path))
    written = files(tmp_path)
    manifest = json.loads(written.pop(".manifest.json"))
    assert [file["name"] for file in manifest["files"]] == [f"small-v1-{n:06d}.tar" for n in range(4)] == list(written)
    assert [file["rows"] for file in manifest["files"]] == [4, 4, 4, 2]
    assert manifest["rows"] == N
    for file in manifest["files"]:
        assert file["bytes"] == len(written[file["name"]])
        assert file["sha256"] == hashlib.sha256(written[file["name"]]).hexdigest()


def test_texts_have_the_columns_of_realsyn_first_and_the_rows_of_pairs(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("pairmill.tasks.release.export.export.TABLE_ROWS", 5)
    found = export(lake, "small", 1, str(tmp_path), "texts")
    assert (found.files, found.rows) == (3, N)
    tables = [pq.read_table(tmp_path / f"small-v1-{n:06d}.parquet") for n in range(3)]
    assert tables[0].column_names[:5] == list(REALSYN)
    assert set(SHOWN) <= set(tables[0].column_names)
    rows = [row for table in tables for row in table.to_pylist()]
    own = f"SELECT * EXCLUDE (dataset, version) FROM (SELECT {OWN} FROM pairs)"
    pairs = lake.table(f"{own} ORDER BY image_id").to_pylist()
    assert rows == pairs


class Killed(Exception):
    pass


def test_a_killed_export_does_not_look_whole_and_goes_on_where_it_was(lake: Lake, tmp_path: Path, small_tars: None):
    def kill(done: int, total: int) -> None:
        if done >= 8:
            raise Killed

    export(lake, "small", 1, str(tmp_path / "undisturbed"))
    with pytest.raises(Killed):
        export(lake, "small", 1, str(tmp_path / "out"), progress=kill)
    assert list(files(tmp_path / "out")) == [".progress.json", "small-v1-000000.tar", "small-v1-000001.tar"]
    first = tmp_path / "out" / "small-v1-000000.tar"
    os.utime(first, (1, 1))
    export(lake, "small", 1, str(tmp_path / "out"))
    assert files(tmp_path / "out") == files(tmp_path / "undisturbed")
    assert first.stat().st_mtime == 1


def test_a_finished_export_is_not_written_again_and_stands_once_in_the_record(lake: Lake, tmp_path: Path):
    first = export(lake, "small", 1, str(tmp_path))
    tar = tmp_path / "small-v1-000000.tar"
    os.utime(tar, (1, 1))
    assert export(lake, "small", 1, str(tmp_path)) == first
    assert tar.stat().st_mtime == 1
    sql = "SELECT dataset, version, format, files, rows, bytes FROM exports WHERE uri = ?"
    assert lake.query(sql, (str(tmp_path),)) == [("small", 1, "webdataset", 1, N, first.bytes)]


def test_a_file_that_was_lost_is_written_again(lake: Lake, tmp_path: Path, small_tars: None):
    export(lake, "small", 1, str(tmp_path))
    before = files(tmp_path)
    (tmp_path / "small-v1-000002.tar").unlink()
    export(lake, "small", 1, str(tmp_path))
    assert files(tmp_path) == before


def test_a_folder_that_holds_another_export_is_left_alone(lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path), "parquet")
    before = files(tmp_path)
    with pytest.raises(PairmillError, match=r"holds the export of small@1 as parquet. Give another folder"):
        export(lake, "small", 1, str(tmp_path), "webdataset")
    assert files(tmp_path) == before


def test_an_export_that_cannot_take_the_lease_writes_nothing(lake: Lake, tmp_path: Path):
    with (
        create_or_open(lake.uri) as other,
        lease.writing(other, "run-9", "curate"),
        pytest.raises(LeaseHeld, match="curate"),
    ):
        export(lake, "small", 1, str(tmp_path / "out"), wait_seconds=0)
    assert not (tmp_path / "out").exists()


def test_a_folder_that_holds_anything_else_is_left_as_it_is(lake: Lake, tmp_path: Path):
    held = {"manifest.json": '{"name": "a web app"}', "progress.json": "{}", "small-v1-notes.txt": "mine"}
    for name, content in held.items():
        (tmp_path / "site").mkdir(exist_ok=True)
        (tmp_path / "site" / name).write_text(content)
        before = files(tmp_path / "site")
        with pytest.raises(PairmillError, match=r"is not empty \(there is 'manifest.json'\).*Give another folder"):
            export(lake, "small", 1, str(tmp_path / "site"))
        assert files(tmp_path / "site") == before and not (tmp_path / "site" / ".pairmill").exists()


@pytest.mark.slow
def test_what_a_user_put_into_an_export_stays_when_it_is_repeated(lake: Lake, tmp_path: Path, small_tars: None):
    export(lake, "small", 1, str(tmp_path))
    for name in ("small-v1-notes.txt", "small-v1-000000.tar.gz", "other-v1-000009.tar", "README"):
        (tmp_path / name).write_text("mine")
    (tmp_path / "small-v1-000009.tar").write_text("of a larger state of this version")
    (tmp_path / "small-v1-000001.tar").unlink()
    export(lake, "small", 1, str(tmp_path))
    kept = {name for name in files(tmp_path) if name.startswith(("small-v1-n", "other", "README"))}
    assert kept == {"small-v1-notes.txt", "other-v1-000009.tar", "README"}
    assert (tmp_path / "small-v1-000000.tar.gz").exists() and not (tmp_path / "small-v1-000009.tar").exists()


@pytest.mark.slow
def test_another_lakes_export_of_a_dataset_of_that_name_is_left_alone(lake: Lake, tmp_path: Path):
    published(tmp_path / "other", pictures=3, image_rules=())
    with create_or_open(tmp_path / "other") as other:
        export(other, "small", 1, str(tmp_path / "out"))
    before = files(tmp_path / "out")
    with pytest.raises(
        PairmillError, match=r"holds the export of small@1 as webdataset of another lake, or of other content"
    ):
        export(lake, "small", 1, str(tmp_path / "out"))
    assert files(tmp_path / "out") == before


def test_no_export_is_written_into_the_data_of_its_lake(lake: Lake):
    with pytest.raises(PairmillError, match="lies in the data of the lake itself"):
        export(lake, "small", 1, f"{lake.data_path}export")
    assert not Path(f"{lake.data_path}export").exists()


@pytest.mark.slow
def test_a_version_amended_meanwhile_is_written_anew(tmp_path: Path, small_tars: None):
    published(tmp_path / "lake", pictures=6, cap=6, image_rules=())
    with create_or_open(tmp_path / "lake") as lake:

        def take_down(done: int, total: int) -> None:
            if done == 4:
                lake.execute("DELETE FROM pairs WHERE image_id = ?", (text_id("image", "5"),))
                lake.execute("UPDATE datasets SET amended = true, n_pairs = 5")

        with pytest.raises(PairmillError, match="was amended while it was exported"):
            export(lake, "small", 1, str(tmp_path / "out"), progress=take_down)
        assert ".manifest.json" not in files(tmp_path / "out")
        assert lake.query("SELECT * FROM exports") == []
        assert export(lake, "small", 1, str(tmp_path / "out")).rows == 5
    kept = {key for name, data in files(tmp_path / "out").items() if name.endswith("tar") for key in samples(data)}
    assert kept == {text_id("image", str(n)) for n in range(5)}


@pytest.mark.slow
def test_a_dataset_without_pairs_is_a_manifest_without_files(tmp_path: Path):
    published(tmp_path / "lake", pictures=1, sentences=())
    with create_or_open(tmp_path / "lake") as lake:
        assert export(lake, "small", 1, str(tmp_path / "out")).files == 0
    assert list(files(tmp_path / "out")) == [".manifest.json"]


@pytest.mark.slow
def test_bytes_that_are_gone_end_it_with_the_remedy_and_without_a_manifest(tmp_path: Path):
    published(tmp_path / "lake", pictures=2, image_rules=())
    os.remove(next((tmp_path / "lake").rglob("payloads/**/*.parquet")))
    with (
        create_or_open(tmp_path / "lake") as lake,
        pytest.raises(PairmillError, match=r"cannot be read.*Put it back from a copy"),
    ):
        export(lake, "small", 1, str(tmp_path / "out"))
    assert list(files(tmp_path / "out")) == [".progress.json"]


def test_a_damaged_picture_ends_it_with_the_remedy_and_the_next_goes_on(tmp_path: Path):
    published(tmp_path / "lake", pictures=2, image_rules=())
    files_of = (tmp_path / "lake").rglob("payloads/**/*.parquet")
    file = next(file for file in files_of if picture(0) in file.read_bytes())
    whole = file.read_bytes()
    at = whole.index(picture(0)) + 60
    file.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    with create_or_open(tmp_path / "lake") as lake:
        with pytest.raises(
            PairmillError, match=r"the bytes of picture .* are damaged.*Put them back, then run the same"
        ):
            export(lake, "small", 1, str(tmp_path / "out"))
        assert list(files(tmp_path / "out")) == [".progress.json"]
        file.write_bytes(whole)
        assert export(lake, "small", 1, str(tmp_path / "out")).rows == 2


@pytest.mark.parametrize("format", ["webdataset", "parquet"])
@pytest.mark.parametrize("after", [0, 1])
def test_a_disk_that_fills_up_while_a_file_is_written_leaves_no_part_of_it(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: Format, after: int
):
    written = []

    def write(file: ExportFile, data: bytes) -> int:
        written.append(data)
        if len(data) > 100 and len(written) > after:  # not the lists
            with file._explaining_errors():
                raise OSError(28, "No space left on device")
        return writing(file, data)

    writing = ExportFile.write
    monkeypatch.setattr(ExportFile, "write", write)
    monkeypatch.setattr(Destination, "write_json", lambda *_: None)
    with pytest.raises(PairmillError, match=r"cannot be written.*No space left.*has room, and run the same"):
        export(lake, "small", 1, str(tmp_path), format)
    assert written and not list(tmp_path.iterdir())


def test_what_cannot_be_exported_is_said_before_any_work(lake: Lake, tmp_path: Path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(PairmillError, match=r"cannot be written.*Check that the folder"):
        export(lake, "small", 1, str(tmp_path / "file"))
    with pytest.raises(PairmillError, match="did you mean 'small'"):
        export(lake, "smal", None, str(tmp_path / "out"))
    with pytest.raises(PairmillError, match="--format csv: there are webdataset, parquet"):
        export(lake, "small", None, str(tmp_path / "out"), "csv")  # pyright: ignore
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_an_export_from_a_lake_that_is_open_for_reading_is_the_same_and_says_that_it_is_not_recorded(
    lake: Lake, tmp_path: Path
):
    recorded = lake.query("SELECT count(*) FROM exports")
    with create_or_open(lake.uri, read_only=True) as reader:
        read = export(reader, "small", None, str(tmp_path / "read"))
    assert read.notes == (UNRECORDED,) and lake.query("SELECT count(*) FROM exports") == recorded
    export(lake, "small", None, str(tmp_path / "written"))
    assert files(tmp_path / "written") == files(tmp_path / "read")


@given(st.lists(st.integers(1, 400_000_000), max_size=60), st.integers(1, 12))
def test_files_take_all_rows_in_order_and_keep_to_both_limits(sizes: list[int], most: int):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pairmill.tasks.release.export.export.TAR_ROWS", most)
        cut = list(spans(np.array(sizes, np.int64), "webdataset"))
    assert [row for first, last in cut for row in range(first, last)] == list(range(len(sizes)))
    for first, last in cut:
        assert 0 < last - first <= most
        assert sum(sizes[first:last]) <= TAR_BYTES or last - first == 1
        full = last - first == most or last == len(sizes)
        assert full or sum(sizes[first : last + 1]) > TAR_BYTES


@pytest.mark.slow
def test_s3_holds_the_same_bytes_and_no_half_of_a_file(lake: Lake, tmp_path: Path, bucket, small_tars, monkeypatch):
    from pairmill.tasks.release.export import export_forms

    def names() -> list[str]:
        return [item["Key"] for item in bucket.list_objects_v2(Bucket="data", Prefix="out/").get("Contents", [])]

    added = []

    def add(tar, pair, data, sample):
        added.append(pair)
        if len(added) == 7:
            raise Killed
        adding(tar, pair, data, sample)

    adding = export_forms._add_sample
    monkeypatch.setattr(export_forms, "_add_sample", add)
    with pytest.raises(Killed):
        export(lake, "small", 1, "s3://data/out/")
    assert names() == ["out/.pairmill", "out/.progress.json", "out/small-v1-000000.tar"]
    export(lake, "small", 1, "s3://data/out/")
    assert len(added) == 7 + N - 4
    export(lake, "small", 1, str(tmp_path / "local"))
    local = files(tmp_path / "local")
    beside = (".pairmill", ".croissant.json", "README.md", "SHA256SUMS")
    assert set(names()) == {*(f"out/{name}" for name in beside), *(f"out/{name}" for name in local)}
    for name, data in local.items():
        assert bucket.get_object(Bucket="data", Key=f"out/{name}")["Body"].read() == data
    for place in ("s3://data/tables", str(tmp_path / "tables")):
        export(lake, "small", 1, place, "parquet")
    (table,) = (tmp_path / "tables").glob("*.parquet")
    assert bucket.get_object(Bucket="data", Key=f"tables/{table.name}")["Body"].read() == table.read_bytes()
    bucket.put_object(Bucket="data", Key="full/a.jpg", Body=b"mine")
    with pytest.raises(PairmillError, match=r"'s3://data/full' is not empty \(there is 'a.jpg'\)"):
        export(lake, "small", 1, "s3://data/full")
    with pytest.raises(PairmillError, match=r"'s3://nowhere/out/\.pairmill' cannot be written.*the bucket's name"):
        export(lake, "small", 1, "s3://nowhere/out")


@pytest.mark.slow
def test_a_lake_and_its_export_inside_a_source_are_no_part_of_it(tmp_path: Path):
    write(tmp_path, {"photo.jpg": picture(0)})
    published(tmp_path / "deep" / "lake", pictures=3, image_rules=())
    with create_or_open(tmp_path / "deep" / "lake") as lake:
        export(lake, "small", 1, str(tmp_path / "out"))
    source = open_source(str(tmp_path))
    assert [unit.uri for unit in source.units()] == [str(tmp_path / "photo.jpg")]
    assert [(fault.item, fault.reason) for fault in source.ignored()] == [
        (str(tmp_path / "deep" / "lake"), "left_out"), (str(tmp_path / "out"), "left_out"),
    ]  # fmt: skip


@pytest.mark.slow
def test_a_version_with_splits_has_files_by_split_which_card_and_croissant_name(tmp_path: Path):
    published(tmp_path / "lake", pictures=12, cap=12)
    with create_or_open(tmp_path / "lake") as lake:
        plan = cut_plan(lake, find(lake, "small"))
        recipe = plan.recipe.with_({"splits": {"train": 0.5, "test": 0.5}, "split_by": ["documents"]})
        cut(lake, plan)
        publish(lake, replace(plan, recipe=recipe), "run-2", 0.9, lambda: 20, components)
    with pm.open(tmp_path / "lake") as opened:
        made = opened.dataset("small@2")
        of = dict(zip(*(made.arrow()[name].to_pylist() for name in ("image_id", "split")), strict=True))
        for format in ("parquet", "webdataset", "folder"):
            opened.export(str(made), str(tmp_path / format), format)
    rows = list(map(json.loads, (tmp_path / "folder" / "metadata.jsonl").open()))
    assert {row["image_id"]: row["split"] for row in rows} == of
    for split in ("train", "test"):
        (table,) = (tmp_path / "parquet").glob(f"small-v2-{split}-*.parquet")
        assert set(pq.read_table(table)["image_id"].to_pylist()) == {key for key in of if of[key] == split}
        assert f"path: small-v2-{split}-*.parquet" in (tmp_path / "parquet" / "README.md").read_text()
    assert sorted(each.name for each in (tmp_path / "webdataset").glob("*.tar")) == [
        "small-v2-test-000000.tar", "small-v2-train-000001.tar"]  # fmt: skip
    told = json.loads((tmp_path / "parquet" / ".croissant.json").read_text())["recordSet"]
    assert told[0]["data"] == [{"splits/name": "test"}, {"splits/name": "train"}]
    field = next(each for each in told[1]["field"] if each["name"] == "split")
    assert field["references"] == {"field": {"@id": "splits/name"}}
    with pm.open(tmp_path / "lake") as opened, pytest.raises(PairmillError, match="has splits, and --format obelics"):
        opened.export("small", str(tmp_path / "documents"), "obelics")
