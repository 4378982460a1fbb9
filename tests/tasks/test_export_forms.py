"""Forms of an export that one kind of trainer reads: RealSyn's columns by address, LLaVA's conversations; checksums."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export.export import export
from pairmill.tasks.release.export.export_forms import SUFFIX
from pairmill.tasks.release.export.picture_folder import RECORD
from tests.tasks.test_loaded_exports import hub
from tests.worlds.published import REALSYN, published

__all__ = ["hub"]  # a fixture

N = 9


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


@pytest.mark.parametrize("form", SUFFIX)
def test_mlcroissant_accepts_the_description_of_every_form(form, lake: Lake, tmp_path: Path):
    import mlcroissant  # 2 s

    export(lake, "small", 1, str(tmp_path), form)
    path = tmp_path / (RECORD if form == "folder" else "") / ".croissant.json"
    described = mlcroissant.Dataset(path).metadata
    assert not described.ctx.issues.errors and described.version == "1.0.0"
    found = json.loads(path.read_text())
    (files,) = found["distribution"]
    assert len(list(tmp_path.glob(files["includes"]))) == (1 if form == "folder" else 2)
    assert found["isBasedOn"] == ["https://example.org"] and found["license"] == ["CC-BY-4.0"]
    recipe, *steps = found["rai:dataPreprocessingProtocol"]
    assert '"name":"small"' in recipe.replace(" ", "") and "sentence length: 3 in, 0 dropped" in steps
    path.write_text(json.dumps(found | {"distribution": [files | {"includes": None, "encodingFormat": None}]}))
    with pytest.raises(mlcroissant.ValidationError):
        mlcroissant.Dataset(path)


@pytest.mark.parametrize("form", ["parquet", "texts", "realsyn", "obelics"])
def test_croissant_names_the_columns_that_the_files_have(form, lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path), form, captions="all" if form in ("parquet", "texts") else "chosen")
    (rows,) = json.loads((tmp_path / ".croissant.json").read_text())["recordSet"]
    first = next(tmp_path.glob("*.parquet"))
    assert [field["name"] for field in rows["field"]] == pq.read_schema(first).names
