"""Words and pictures find the pictures whose stored vectors are nearest, by the model that made these vectors."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from pairmill.catalog.queries.gallery.image_vectors import ImageVectors
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.whole.sign_codes import EXACT_BELOW, most_similar
from pairmill.ops.whole.sign_codes import nearest as nearest_rows
from pairmill.tasks.release.gallery import vector_files
from pairmill.tasks.release.gallery.vector_files import code_index
from tests.worlds.browsed import Pages, ids, rows, text
from tests.worlds.generated import small_settings


def vectors(lake: Path) -> dict[str, np.ndarray]:
    found = rows(lake, "SELECT sha256, image_vector FROM image_embedding WHERE image_vector IS NOT NULL")
    return {sha: np.frombuffer(vector, "<f2").astype(np.float32) for sha, vector in found}


def nearest(lake: Path, query: np.ndarray) -> list[str]:
    """Return the ids of all pictures with a vector, the most similar first."""
    stored = vectors(lake)
    ranked = sorted(stored, key=lambda sha: (-float(stored[sha] @ query), sha))
    images: dict[str, list[str]] = {}
    for image_id, sha in rows(lake, "SELECT image_id, sha256 FROM images ORDER BY image_id"):
        images.setdefault(sha, []).append(image_id)
    return [image_id for sha in ranked for image_id in images[sha]]


def test_words_find_the_pictures_nearest_to_them(pages: Pages, lake: Path):
    words = "a small peacock"
    query = Clip(small_settings()["models.clip"]).embed_texts([words])[0]
    page = pages.gallery(f"/gallery?dataset=demo@1&words={quote(words)}")
    found = ids(page)
    assert found == nearest(lake, query)[: len(found)] and len(found) == 60
    best = max(float(vector @ query) for vector in vectors(lake).values())
    assert text(page.find_class("value")[0]) == f"similarity {best:.3f}"


def test_a_picture_finds_itself_first_and_filters_still_restrict(pages: Pages, lake: Path):
    sha, query = next(iter(vectors(lake).items()))
    expected = nearest(lake, query)
    assert ids(pages.gallery(f"/gallery?dataset=demo@1&like={sha}")) == expected[:60]
    kept = {row[0] for row in rows(lake, "SELECT image_id FROM pairs WHERE dataset = 'demo' AND version = 1")}
    shown = ids(pages.gallery(f"/gallery?dataset=demo@1&like={sha}&fate=kept"))
    assert shown == [image_id for image_id in expected if image_id in kept][:60] and shown


def test_an_uploaded_picture_finds_the_same_picture_of_the_lake(pages: Pages, lake: Path):
    sql = "SELECT sha256, uri, bytes FROM payloads JOIN image_embedding USING (sha256) WHERE image_vector IS NOT NULL"
    sha, uri, data = rows(lake, f"{sql} ORDER BY sha256 LIMIT 1")[0]
    headers = {"Origin": "http://127.0.0.1:8765", "Content-Type": "application/octet-stream"}
    answer = pages.client.post("/like?dataset=demo@1", content=data or Path(uri).read_bytes(), headers=headers)
    assert answer.status_code == 200, answer.text
    first = ids(pages.gallery(answer.json()["location"]))[0]
    assert rows(lake, f"SELECT sha256 FROM images WHERE image_id = '{first}'") == [(sha,)]
    refused = pages.client.post("/like?dataset=demo@1", content=b"<svg onload=alert(1)>", headers=headers)
    assert refused.status_code == 400 and "no picture that can be read" in refused.text


def test_a_lake_without_vectors_says_what_to_do(small_pages: Pages):
    small_pages.gallery("/gallery?dataset=small@1")
    page = small_pages.page("/gallery?dataset=small@1&words=fox", 400)
    assert "holds no vectors" in text(page.find_class("fault")[0])


def test_the_scan_finds_what_sorting_all_products_finds():
    stored = np.random.default_rng(5).normal(size=(40_000, 16)).astype(np.float16)
    query = np.asarray(stored[17], np.float32)
    every = np.argsort(-(stored.astype(np.float32) @ query), kind="stable")
    assert most_similar(query, stored, 50).tolist() == every[:50].tolist()
    assert most_similar(query, stored[:3], 50).shape == (3,) and most_similar(query, stored[:0], 5).shape == (0,)


def test_codes_are_written_once_beside_the_vectors_and_again_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    n, d = EXACT_BELOW + 5, 16
    stored = np.random.default_rng(5).normal(size=(n, d)).astype(np.float16)
    ids = np.array([b"%032d" % row for row in range(n)])
    found = ImageVectors(ids, stored, "scorer", "model", tmp_path / "vectors-a.bin")
    found.path.touch()
    query = stored[7].astype(np.float32)
    rows = nearest_rows(code_index(found), query, stored, 50).tolist()
    file = tmp_path / "vectors-a.codes"
    written = file.stat().st_mtime_ns
    assert nearest_rows(code_index(found), query, stored, 50).tolist() == rows and file.stat().st_mtime_ns == written
    file.write_bytes(b"torn")
    assert nearest_rows(code_index(found), query, stored, 50).tolist() == rows and file.stat().st_size > 4
    file.unlink()
    first = vector_files.empty_index

    def index_of(sample: np.ndarray) -> Any:  # while a removal deletes all, what is half written too
        for each in tmp_path.iterdir():
            each.unlink()
        return first(sample)

    monkeypatch.setattr(vector_files, "empty_index", index_of)
    assert nearest_rows(code_index(found), query, stored, 50).tolist() == rows and list(tmp_path.iterdir()) == []
