"""`export --format obelics`: kept documents in the order of their pages, which our own ingest reads back."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.sql.sql_answer import sentence_decisions
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id, text_id
from pairmill.ops.read.document import Document, Picture, Text
from pairmill.ops.read.source import open_source
from pairmill.ops.text.split import SentenceSplitter, normalise
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export.export import Exported, export
from tests.tasks.test_loaded_exports import hub
from tests.worlds.superseding import ingested

__all__ = ["hub"]  # a fixture


def exported(lake: Path, to: Path) -> Exported:
    """Export the lake's version, eight documents a file."""
    with pytest.MonkeyPatch.context() as patch, create_or_open(lake) as opened:
        patch.setattr(of_dataset, "TABLE_ROWS", 8)
        return export(opened, "demo", 1, str(to), "obelics")


def documents(folder: Path) -> dict[str, list[str]]:
    """Return the exported documents by id: for each place a text, or the id of a picture's bytes."""
    found = {}
    for path in sorted(folder.glob("*.parquet")):
        for row in pq.read_table(path).to_pylist():
            pictures = [data and content_id(data) for data in row["image_bytes"]]
            assert all((url is None) == (data is None) != (text is None)
                       for url, data, text in zip(row["images"], pictures, row["texts"], strict=True))  # fmt: skip
            items = [text or data for text, data in zip(row["texts"], pictures, strict=True)]
            found[json.loads(row["general_metadata"])["document_id"]] = items
    return found


def of_pages(lake: Lake, pages: Path) -> dict[str, list[str]]:
    """Return the same from the pages themselves: kept pictures, and sentences that no rule drops."""
    decisions = sentence_decisions(lake, [datasets.find(lake, "demo@1")])
    passing = {key for (key,) in lake.query(f"SELECT item_id FROM ({decisions}) WHERE dropped_by IN ('', 'duplicate')")}
    kept = set(lake.query("SELECT document_id, i.position FROM pairs JOIN images i USING (image_id, document_id)"))
    ids = dict(lake.query("SELECT uri, document_id FROM documents"))
    source, splitter = open_source(str(pages)), SentenceSplitter("en")
    found: dict[str, list[str]] = {}
    for document in (each for unit in source.units() for each in source.read(unit)):
        if isinstance(document, Document) and any(id == ids[document.uri] for id, _ in kept):
            texts: list[str] = []
            items = found.setdefault(ids[document.uri], [])
            for item in document.items:
                if isinstance(item, Text):
                    said = [each for each in splitter(item.text) if text_id(normalise(each)) in passing]
                    texts += [" ".join(said)] if said else []
                elif isinstance(item, Picture) and (ids[document.uri], item.position) in kept:
                    items += [*_joined(texts), content_id(item.data)]
                    texts = []
            items += _joined(texts)
    return found


def _joined(paragraphs: Sequence[str]) -> list[str]:
    return ["\n\n".join(paragraphs)] if paragraphs else []


@pytest.mark.slow
def test_documents_have_the_kept_pictures_and_sentences_in_the_order_of_their_pages(
    curated_copy: Path, pages: Path, tmp_path: Path
):
    found = exported(curated_copy, tmp_path / "out")
    read = documents(tmp_path / "out")
    with create_or_open(curated_copy, read_only=True) as lake:
        assert read == of_pages(lake, pages)
        n_pairs = lake.query("SELECT count(*) FROM pairs")[0][0]
    is_picture = [len(item) == 32 and " " not in item for items in read.values() for item in items]
    assert sum(is_picture) == n_pairs and found.rows == len(read) > 8
    assert any(is_picture[n - 1] and not is_picture[n] and is_picture[n + 1] for n in range(1, len(is_picture) - 1))


@pytest.mark.slow
def test_our_own_ingest_reads_the_same_texts_and_pictures_in_the_same_order(curated_copy: Path, tmp_path: Path):
    exported(curated_copy, tmp_path / "out")
    (tmp_path / "pages").mkdir()
    for path in (tmp_path / "out").glob("*.parquet"):
        shutil.copy(path, tmp_path / "pages" / path.name)  # an export itself is no source
    place = tmp_path / "again"
    place.mkdir()
    paragraphs = "SELECT document_id, reading_order, string_agg(text, ' ' ORDER BY position) AS item FROM sentences " \
                 "GROUP BY ALL"  # fmt: skip
    items = f"{paragraphs} UNION ALL SELECT document_id, reading_order, sha256 FROM images"
    with ingested(place, str(tmp_path / "pages")) as held:
        first = "json_extract_string(metadata, '$.document_id')"
        sql = f"SELECT {first}, list(item ORDER BY reading_order) FROM ({items}) JOIN documents USING (document_id) " \
              "GROUP BY ALL"  # fmt: skip
        read = dict(held.lake.query(sql))
        assert held.lake.query("SELECT * FROM quarantine") == []
    assert read == {key: [part for item in items for part in item.split("\n\n")]
                    for key, items in documents(tmp_path / "out").items()}  # fmt: skip


@pytest.mark.slow
def test_datasets_loads_the_documents_with_the_addresses_and_what_is_known_of_each_picture(
    curated_copy: Path, tmp_path: Path, hub: Any
):
    exported(curated_copy, tmp_path / "out")
    rows = list(hub.load_dataset(str(tmp_path / "out"), split="train"))
    with create_or_open(curated_copy, read_only=True) as lake:
        pairs = {row[0]: row for row in lake.query("SELECT image_id, raw_image_url, caption, syn_text FROM pairs")}
    assert len(rows) == len(documents(tmp_path / "out"))
    told = [(address, about) for row in rows
            for address, about in zip(row["images"], json.loads(row["metadata"]), strict=True)]  # fmt: skip
    said = {about["image_id"]: (about["image_id"], about["src"], about["caption"], about["syn_text"])
            for _, about in told if about}  # fmt: skip
    assert said == pairs
    assert all((about is None) == (address is None) and (about is None or about["src"] == address)
               for address, about in told)  # fmt: skip
    page = json.loads(rows[0]["general_metadata"])["url"]
    assert page.endswith(".html") and not page.startswith("/")  # no path of this machine


@pytest.mark.parametrize("choice", [{"shuffle": 1}, {"captions": "all"}, {"text": "caption"}])
def test_what_is_chosen_for_pairs_is_refused_for_documents(choice: dict, curated_copy: Path, tmp_path: Path):
    with create_or_open(curated_copy) as lake, pytest.raises(PairmillError, match="Leave it out"):
        export(lake, "demo", 1, str(tmp_path / "out"), "obelics", **choice)
    assert not (tmp_path / "out").exists()
