"""Every export is loaded by the libraries of trainers: all rows, the pictures' original bytes, the texts unchanged."""

import io
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
import webdataset
from PIL import Image

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.ops.read.document import Document, Picture, Text
from pairmill.ops.read.source import open_source
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export import parquet_tables
from pairmill.tasks.release.export.export import export
from pairmill.tasks.release.export.export_forms import text_choice
from tests.worlds.published import SENTENCES, picture, published

N = 14
LATE = 11  # the only pair with a second text and a tag: without care, the first samples would give neither a type
FORMS = ("webdataset", "parquet")
PICTURES = [picture(n) for n in range(N)]
# Not forked from this process: a test run has threads, whose locks a forked child would find held.
IN_WORKERS: Any = {"batch_size": None, "num_workers": 2, "multiprocessing_context": "forkserver"}


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The library `datasets`, without a network and with a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (("HF_DATASETS_OFFLINE", "1"), ("HF_HUB_OFFLINE", "1")):
            patch.setenv(name, value)
        import datasets  # 1.5 s, so not in every process that collects this file

        patch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path_factory.mktemp("cache"))
        datasets.disable_progress_bars()
        yield datasets


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """Pictures of three formats, and columns that are NULL in all pairs but one."""
    place = tmp_path_factory.mktemp("loaded") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    with create_or_open(place) as opened:
        late = content_id(PICTURES[LATE])
        opened.execute("UPDATE pairs SET text2 = NULL, similarity2 = NULL, tags = [] WHERE sha256 <> ?", (late,))
        yield opened


@pytest.fixture(scope="module")
def exported(lake: Lake, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each form of a version, and one that grows with captions for texts, in several files and row groups."""
    place = tmp_path_factory.mktemp("out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_dataset, "TAR_ROWS", 8)
        patch.setattr(of_dataset, "TABLE_ROWS", 8)
        patch.setattr(parquet_tables, "GROUP_ROWS", 3)
        for form in FORMS:
            export(lake, "small", 1, str(place / form), form)
            text = "caption" if form == "webdataset" else "text1"
            export(lake, "small", 1, str(place / f"growing-{form}"), form, text=text, grow=True)
    return place


@pytest.fixture(scope="module")
def pairs(lake: Lake) -> list[dict[str, Any]]:
    return lake.table(
        "SELECT * EXCLUDE (dataset, version, split, size, licence, licence_url, attribution, text4, text5, "
        "similarity4, similarity5) FROM pairs ORDER BY image_id"
    ).to_pylist()


def undecoded(hub: ModuleType, rows: Any) -> Any:
    return rows.cast_column("jpg" if "jpg" in rows.features else "image", hub.Image(decode=False))


def check_rows(hub: ModuleType, rows: Any, pairs: list[dict[str, Any]]) -> None:
    """Every pair once, with its columns and its picture's bytes, which decode to its size."""
    column = "jpg" if "jpg" in rows.features else "image"
    assert rows.features[column] == hub.Image()
    sizes = {row[column].size for row in rows}
    assert sizes == {(pair["width"], pair["height"]) for pair in pairs}
    found = []
    for row in undecoded(hub, rows):
        columns = {**row["json"]} if column == "jpg" else {**row}
        assert content_id(row[column]["bytes"]) == columns["sha256"]
        assert row[column]["path"].partition(".")[0] == columns["image_id"]
        assert column == "image" or row["txt"] == columns["text1"]
        found.append({name: columns[name] for name in pairs[0]})
    assert sorted(found, key=lambda row: row["image_id"]) == pairs


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_datasets_loads_the_folder(form: str, streaming: bool, hub: ModuleType, exported: Path, pairs: list):
    check_rows(hub, hub.load_dataset(str(exported / form), split="train", streaming=streaming), pairs)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_datasets_loads_the_files_without_the_card(
    form: str, streaming: bool, hub: ModuleType, exported: Path, pairs: list
):
    files = str(exported / form / "small-v1-*")
    check_rows(hub, hub.load_dataset(form, data_files=files, split="train", streaming=streaming), pairs)


@pytest.mark.parametrize("streaming", [True, False])
@pytest.mark.parametrize("form", FORMS)
def test_datasets_loads_an_export_that_grows(form: str, streaming: bool, hub: ModuleType, exported: Path):
    rows = hub.load_dataset(str(exported / f"growing-{form}"), split="train", streaming=streaming)
    found = [(row["json"], row["jpg"]) if form == "webdataset" else (row, row["image"]) for row in undecoded(hub, rows)]
    assert sorted(image["bytes"] for _, image in found) == sorted(PICTURES)
    for columns, image in found:
        assert content_id(image["bytes"]) == columns["sha256"] and columns["caption"] == "A coloured field."


def test_datasets_loads_texts_alone(hub: ModuleType, lake: Lake, pairs: list, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path / "texts"), "texts")
    assert sorted(hub.load_dataset(str(tmp_path / "texts"), split="train"), key=lambda row: row["image_id"]) == pairs


@pytest.mark.slow
def test_datasets_loads_every_captioners_text_where_all_but_the_last_have_none(hub: ModuleType, tmp_path: Path):
    published(tmp_path / "lake", pictures=8, cap=8, image_rules=())
    with create_or_open(tmp_path / "lake") as lake:
        order = "SELECT sha256 FROM pairs p JOIN image_content c USING (sha256) ORDER BY c.shard DESC, image_id DESC"
        ((last,), *others) = lake.query(order)
        lake.execute("UPDATE captions SET status = 'empty' WHERE sha256 <> ?", (last,))
        export(lake, "small", 1, str(tmp_path / "out"), captions="all")
    rows = [row["json"] for row in hub.load_dataset(str(tmp_path / "out"), split="train")]
    found = {row["sha256"]: row["captions"][0]["text"] for row in rows}
    assert found == {last: "A coloured field.", **{sha: None for (sha,) in others}}


@pytest.mark.parametrize("growing", ["", "growing-"])
def test_webdataset_decodes_every_picture_in_the_workers_of_torch(growing: str, exported: Path):
    tars = sorted(str(path) for path in (exported / f"{growing}webdataset").glob("*.tar"))
    samples = webdataset.WebDataset(tars, shardshuffle=False).decode("torchrgb")
    read = list(torch.utils.data.DataLoader(samples, **IN_WORKERS))
    names = {text_id("image", str(n)): data for n, data in enumerate(PICTURES)}
    assert {sample["__key__"] for sample in read} == set(names) and len(read) == N
    for sample in read:
        with Image.open(io.BytesIO(names[sample["__key__"]])) as image:
            assert sample["jpg"].shape == (3, image.height, image.width)
        assert sample["txt"] == ("A coloured field." if growing else "A red fox sleeps in the sun.")


def test_webdataset_reads_a_text_by_chance_of_those_that_a_pair_has(lake: Lake, tmp_path: Path):
    spec = "random(text1..text2 * 3, caption)"
    export(lake, "small", 1, str(tmp_path / "out"), text=spec)
    tars = sorted(str(path) for path in (tmp_path / "out").glob("*.tar"))
    given = {each["__key__"]: each["txt"] for each in webdataset.WebDataset(tars, shardshuffle=False).decode()}
    chosen = text_choice(spec)
    rows = lake.table("SELECT * FROM pairs WHERE dataset = 'small'").to_pylist()
    assert given == {row["image_id"]: chosen.text_of(row) for row in rows} and len(set(given.values())) > 1
    with pytest.raises(PairmillError, match=r"holds the export of small@1 as webdataset with the text random"):
        export(lake, "small", 1, str(tmp_path / "out"))


@pytest.mark.parametrize("form", FORMS)
def test_a_loader_of_torch_reads_a_stream_of_datasets(form: str, hub: ModuleType, exported: Path):
    rows = hub.load_dataset(str(exported / form), split="train", streaming=True).with_format("torch")
    read = list(torch.utils.data.DataLoader(rows, **IN_WORKERS))
    assert len(read) == N and all((row["jpg"] if "jpg" in row else row["image"]).ndim == 3 for row in read)


@pytest.mark.parametrize("form", [*FORMS, *(f"growing-{form}" for form in FORMS)])
def test_the_card_names_the_data_files_and_no_other_file_is_seen(form: str, hub: ModuleType, exported: Path):
    from datasets.utils.metadata import MetadataConfigs
    from huggingface_hub import DatasetCard

    folder = exported / form
    card = DatasetCard.load(folder / "README.md")
    (config,) = MetadataConfigs.from_dataset_card_data(card.data).values()
    (split,) = config["data_files"]
    data = sorted(path.name for path in folder.glob(split["path"]))
    assert len(data) > 1 and split["split"] == "train"
    shown = [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    assert sorted(shown) == sorted([*data, "README.md", "SHA256SUMS"])
    manifest = json.loads((folder / ".manifest.json").read_text())
    assert [file["name"] for file in manifest["files"]] == data
    assert "```python" in card.text


def test_a_viewer_finds_the_picture_column_and_small_row_groups(hub: ModuleType, exported: Path):
    for path in (exported / "parquet").glob("*.parquet"):
        file = pq.ParquetFile(path)
        assert hub.Features.from_arrow_schema(file.schema_arrow)["image"] == hub.Image()
        assert file.schema_arrow.names[:2] == ["image", "raw_image_url"]
        assert max(file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)) == 3


@pytest.mark.parametrize("form", FORMS)
def test_pairmill_reads_a_copy_of_the_files_with_their_pictures_and_texts(form: str, exported: Path, tmp_path: Path):
    for path in (exported / form).glob("small-v1-*"):
        shutil.copy(path, tmp_path)
    source = open_source(str(tmp_path))
    documents = [each for unit in source.units() for each in source.read(unit) if isinstance(each, Document)]
    parts = [part for document in documents for part in document.items]
    assert sorted(part.data for part in parts if isinstance(part, Picture)) == sorted(PICTURES)
    assert {part.text for part in parts if isinstance(part, Text)} >= {SENTENCES[0]}


def test_a_card_that_its_owner_edited_stays(lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path))
    (tmp_path / "README.md").write_text("---\nlicense: cc0-1.0\n---\nMine.\n")
    (tmp_path / "small-v1-000000.tar").unlink()
    export(lake, "small", 1, str(tmp_path))
    assert (tmp_path / "README.md").read_text().endswith("Mine.\n")
