"""Forms of an export that one kind of trainer reads: RealSyn's columns by address, LLaVA's conversations; checksums."""

import json
import subprocess
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from PIL import ExifTags, Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export.export import export
from pairmill.tasks.release.export.export_forms import SUFFIX, check_choices
from pairmill.tasks.release.export.picture_folder import RECORD
from tests.examples import slow_but
from tests.tasks.test_loaded_exports import hub
from tests.worlds import published as of_world
from tests.worlds.published import REALSYN, published

__all__ = ["hub"]  # a fixture

N = 9
PRIVATE = b"Ada-of-7731"


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    place = tmp_path_factory.mktemp("forms") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    with create_or_open(place) as opened:
        first = [url for (url,) in opened.query("SELECT raw_image_url FROM pairs ORDER BY 1 LIMIT 2")]
        opened.execute(
            "UPDATE pairs SET raw_image_url = 'folder/0.jpg', caption = '' WHERE raw_image_url = ?", first[:1]
        )
        opened.execute("UPDATE pairs SET raw_image_url = NULL WHERE raw_image_url = ?", first[1:])
        opened.execute('UPDATE documents SET metadata = \'{"license": "CC-BY-4.0"}\'')
        opened.execute("UPDATE images SET reading_order = 2 * position")
        yield opened


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(of_dataset, "TABLE_ROWS", 5)
    monkeypatch.setattr(of_dataset, "TAR_ROWS", 5)


def test_realsyn_is_its_five_columns_of_the_pairs_with_an_address_on_the_web(lake: Lake, tmp_path: Path, hub):
    found = export(lake, "small", 1, str(tmp_path / "out"), "realsyn")
    rows = list(hub.load_dataset(str(tmp_path / "out"), split="train"))
    assert found.rows == len(rows) == N - 2
    assert f"2 of {N} pairs are left out: their pictures have no address on the web" in found.notes[0]
    assert all(tuple(row) == REALSYN and row["raw_image_url"].startswith("https://") for row in rows)
    pairs = lake.table(f"SELECT {', '.join(REALSYN)} FROM pairs WHERE raw_image_url LIKE 'https:%'").to_pylist()
    key = REALSYN[0]
    assert sorted(rows, key=lambda row: row[key]) == sorted(pairs, key=lambda row: row[key])


def test_llava_is_a_conversation_for_each_pair_with_a_text(lake: Lake, tmp_path: Path, hub):
    found = export(lake, "small", 1, str(tmp_path / "out"), "llava", text="caption")
    rows = list(hub.load_dataset(str(tmp_path / "out"), split="train"))
    files = [json.loads(path.read_text()) for path in sorted((tmp_path / "out").glob("small-*.json"))]
    assert [row for file in files for row in file] == rows and len(files) == 2
    assert found.rows == len(rows) == N - 1
    captions = dict(lake.query("SELECT image_id, caption FROM pairs WHERE caption <> ''"))
    assert {row["id"] for row in rows} == set(captions)
    for row in rows:
        assert row["image"] == f"{row['id']}.jpg"
        question, answer = row["conversations"]
        assert question == {"from": "human", "value": "<image>\nDescribe the image."}
        assert answer == {"from": "gpt", "value": captions[row["id"]]}


def test_llava_asks_about_one_picture_once_for_each_of_its_texts(lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path / "out"), "llava", text="each(text1, caption)", shuffle=1)
    rows = [row for path in (tmp_path / "out").glob("small-*.json") for row in json.loads(path.read_text())]
    assert len(rows) == len({row["id"] for row in rows}) == 2 * N - 1 and len({row["image"] for row in rows}) == N


@pytest.mark.parametrize("form", ["webdataset", "llava"])
def test_sha256sum_accepts_the_checksums_and_finds_a_changed_byte(form, lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path), form)
    command = ["sha256sum", "--strict", "-c", "SHA256SUMS"]
    good = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert good.returncode == 0 and good.stdout.count(": OK") == 2 and not good.stderr
    data = next(tmp_path.glob("small-v1-000001.*"))
    data.write_bytes(data.read_bytes()[:-1] + b"!")
    bad = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert bad.returncode == 1 and f"{data.name}: FAILED" in bad.stdout


@pytest.mark.parametrize("form", slow_but(["parquet"], SUFFIX))
def test_mlcroissant_accepts_the_description_of_every_form(form, lake: Lake, tmp_path: Path):
    import mlcroissant  # 2 s

    export(lake, "small", 1, str(tmp_path), form)
    path = tmp_path / (RECORD if form == "folder" else "") / ".croissant.json"
    described = mlcroissant.Dataset(path).metadata
    assert not described.ctx.issues.errors and described.version == "1.0.0"
    found = json.loads(path.read_text())
    recipe, *steps = found["rai:dataPreprocessingProtocol"]
    assert '"name":"small"' in recipe.replace(" ", "") and "sentence length: 3 in, 0 dropped" in steps
    assert not [each for each in described.ctx.issues.warnings if "cardinality" in each]
    if form == "card":
        assert found["distribution"] == [] and "host: example.org" in found["rai:dataCollection"]
        return
    (files,) = found["distribution"]
    assert len(list(tmp_path.glob(files["includes"]))) == (1 if form == "folder" else 2)
    assert found["isBasedOn"] == ["https://example.org"] and found["license"] == ["CC-BY-4.0"]
    path.write_text(json.dumps(found | {"distribution": [files | {"includes": None, "encodingFormat": None}]}))
    with pytest.raises(mlcroissant.ValidationError):
        mlcroissant.Dataset(path)


@pytest.mark.parametrize("form", ["parquet", "texts", "realsyn", "obelics"])
def test_croissant_names_the_columns_that_the_files_have(form, lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path), form, captions="all" if form in ("parquet", "texts") else "chosen")
    (rows,) = json.loads((tmp_path / ".croissant.json").read_text())["recordSet"]
    first = next(tmp_path.glob("*.parquet"))
    assert [field["name"] for field in rows["field"]] == pq.read_schema(first).names


@pytest.mark.slow
def test_every_form_leaves_private_metadata_out_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def private(n: int) -> bytes:
        block, out = Image.Exif(), BytesIO()
        block[ExifTags.Base.Artist] = PRIVATE.decode()
        Image.new("RGB", (40 + n, 50), "red").save(out, "JPEG" if n else "PNG", exif=block)
        return out.getvalue() if n else out.getvalue()[:-12]  # the PNG has no end

    def table(form: str) -> list[dict[str, Any]]:
        return pq.read_table(next((tmp_path / form).glob("*.parquet"))).to_pylist()

    monkeypatch.setattr(of_world, "picture", private)
    of_world._publish(tmp_path / "lake", of_world.Contents(pictures=3, cap=3, image_rules=()))
    with create_or_open(tmp_path / "lake") as lake:
        for form in ("webdataset", "parquet", "obelics", "folder"):
            export(lake, "small", 1, str(tmp_path / form), form)
        export(lake, "small", 1, str(tmp_path / "whole"), "parquet", metadata="original")
    rows = table("parquet")
    pictures = {
        "parquet": [row["image"]["bytes"] for row in rows],
        "obelics": [data for row in table("obelics") for data in row["image_bytes"]],
        "webdataset": [next((tmp_path / "webdataset").glob("*.tar")).read_bytes()],
        "folder": [path.read_bytes() for path in (tmp_path / "folder").rglob("*") if path.is_file()],
    }
    for form, held in pictures.items():  # the broken PNG stays as it is
        assert b"".join(filter(None, held)).count(PRIVATE) == 1, form
    assert sorted(row["picture_metadata"] for row in rows) == ["original", "stripped", "stripped"]
    for row in rows:
        assert row["exported_sha256"] == content_id(row["image"]["bytes"])
        assert (row["exported_sha256"] == row["sha256"]) == (row["picture_metadata"] == "original")
    listed = list(map(json.loads, (tmp_path / "folder/metadata.jsonl").open()))
    assert {row["exported_sha256"] for row in listed} == {row["exported_sha256"] for row in rows}
    assert {row["image"]["bytes"] for row in table("whole")} == set(map(private, range(3)))
    with pytest.raises(PairmillError, match="--metadata original is for pictures, and texts has none"):
        check_choices("texts", "text1", "chosen", None, False, {}, "original")
