"""The map has a point for each image with a vector, coloured by what SQL says, and an area's pictures are a gallery."""

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pytest

from pairmill.catalog.queries.gallery.image_vectors import ImageVectors
from pairmill.ops.whole import projection
from pairmill.tasks.release.gallery import vector_files as made
from tests.worlds.browsed import Pages, ids, rows, text

OF = "dataset=demo@1"
WITH_VECTOR = "SELECT image_id FROM images SEMI JOIN (SELECT * FROM image_embedding WHERE image_vector IS NOT NULL) USING (sha256) ORDER BY 1"  # fmt: skip # noqa: E501


def answer(pages: Pages, path: str) -> Any:
    while (found := pages.client.get(path)).status_code == 202:
        time.sleep(0.05)
    assert found.status_code == 200, found.text
    return found


@pytest.fixture(scope="module")
def places(pages: Pages) -> np.ndarray:
    pages.gallery(f"/gallery?{OF}")
    return np.frombuffer(answer(pages, f"/map/points?{OF}").content, "<u2").reshape(-1, 2)


def test_there_is_a_point_for_each_image_with_a_vector(pages: Pages, lake: Path, places: np.ndarray):
    expected = [row[0] for row in rows(lake, WITH_VECTOR)]
    assert len(places) == len(expected) > 50
    for n in (0, 17, len(expected) - 1):
        assert pages.client.get(f"/map/point?{OF}&n={n}").json()["image_id"] == expected[n]
    assert pages.client.get(f"/map/point?{OF}&n={len(expected)}").status_code == 404


def test_colours_are_the_values_of_the_column(pages: Pages, lake: Path, places: np.ndarray):
    of = {row[0]: row[1:] for row in rows(lake, "SELECT image_id, format, width FROM images")}
    images = [of[row[0]] for row in rows(lake, WITH_VECTOR)]
    found = answer(pages, f"/map/colours?{OF}&by=format")
    names = json.loads(found.headers["x-legend"])["names"]
    assert [names[code] for code in found.content] == [each[0] for each in images] and len(names) > 1
    found = answer(pages, f"/map/colours?{OF}&by=width")
    legend, widths = json.loads(found.headers["x-legend"]), np.array([each[1] for each in images], float)
    assert (legend["low"], legend["high"]) == tuple(np.percentile(widths, (1, 99)))
    steps = np.clip((widths - legend["low"]) / (legend["high"] - legend["low"]), 0, 1) * 254
    assert (np.frombuffer(found.content, np.uint8) == steps.astype(np.uint8)).all()
    fates = json.loads(answer(pages, f"/map/colours?{OF}&by=fate").headers["x-legend"])["names"]
    assert "kept" in fates and "" not in fates
    assert pages.client.get(f"/map/colours?{OF}&by=sha256").status_code == 400
    cells = [tuple(cell) for cell in (places.astype(int) >> 8).tolist()]
    legend = json.loads(answer(pages, f"/map/colours?{OF}&by=density").headers["x-legend"])
    near = [cells.count(cell) for cell in cells]
    assert [legend["low"], legend["high"]] == np.percentile(near, (1, 99)).tolist()


def test_the_largest_clusters_have_labels_amid_their_pictures_and_pages(pages: Pages, lake: Path, places: np.ndarray):
    of = dict(rows(lake, "SELECT image_id, cluster FROM pairs"))
    labels = json.loads(answer(pages, f"/map/points?{OF}").headers["x-labels"])
    assert {each["cluster"] for each in labels} >= {cluster for cluster in of.values() if cluster is not None}
    assert [each["n"] for each in labels] == sorted((each["n"] for each in labels), reverse=True)
    assert all(each["name"] and 0 <= each["x"] <= 65535 for each in labels)
    cluster = labels[0]["cluster"]
    page = pages.page(f"/cluster/{cluster}?{OF}")
    kept = [image for image, other in of.items() if other == cluster]
    assert labels[0]["name"] in text(page.find(".//h1")) and f"{len(kept)} kept" in text(page.find(".//main"))
    assert set(ids(page)) & set(of) <= set(kept)
    assert pages.client.get(f"/cluster/99999?{OF}").status_code == 404


def test_a_lassoed_area_is_a_gallery_of_its_pictures(pages: Pages, lake: Path, places: np.ndarray):
    middle = np.median(places[:, 0])
    images = np.array([row[0] for row in rows(lake, WITH_VECTOR)])
    inside = set(images[(places[:, 0] < middle)])
    corners = f"0,0;{int(middle)},0;{int(middle)},65535;0,65535"
    page = pages.gallery(f"/gallery?{OF}&area={quote(corners)}")
    assert text(page.find_class("count")[0].find("b")) == str(len(inside)) and 0 < len(inside) < len(images)
    assert set(ids(page)) <= inside
    kept = {row[0] for row in rows(lake, "SELECT image_id FROM pairs")} & inside
    page = pages.gallery(f"/gallery?{OF}&fate=kept&area={quote(corners)}")
    assert text(page.find_class("count")[0].find("b")) == str(len(kept)) and kept
    assert f"area={quote(corners)}" in page.xpath("string(//nav[@class='chips']/a/@href)")


@pytest.mark.parametrize("area", ["1,2", "1,2;3,4;x,y", "1,2;3,4;5,6') OR (1=1", "1,2;" * 300 + "3,4"])
def test_an_area_that_is_none_is_refused(pages: Pages, area: str):
    assert pages.client.get(f"/gallery?{OF}&area={quote(area)}").status_code == 400


def test_a_concave_area_leaves_out_what_lies_in_its_notch():
    places = np.array([[10, 10], [50, 10], [90, 10], [50, 90], [50, 40]], np.uint16)
    area = np.array([[0, 0], [100, 0], [100, 100], [50, 20], [0, 100]], np.float32)
    inside = made.PictureMap(places, "").inside(area)
    assert inside.tolist() == [True, True, True, False, False]


def test_a_lake_without_vectors_says_so_on_its_map(small_pages: Pages):
    small_pages.gallery("/gallery?dataset=small@1")
    refused = small_pages.client.get("/map/points?dataset=small@1")
    assert refused.status_code == 409 and "holds no vectors" in refused.json()["fault"]


def test_pictures_keep_their_places_until_the_lake_has_doubled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    vectors = np.random.default_rng(1).normal(size=(120, 8)).astype(np.float16)
    fits = []
    fit = projection.fit
    monkeypatch.setattr(projection, "fit", lambda sample: fits.append(len(sample)) or fit(sample))

    def mapped(n: int) -> made.PictureMap:
        ids, path = np.array([b"%032d" % row for row in range(n)]), tmp_path / f"vectors-{n}.bin"
        path.touch()
        return made.picture_map(ImageVectors(ids, vectors[:n], "scorer", "", path))

    first, grown = mapped(50), mapped(100)
    assert fits == [50] and grown.digest == first.digest
    assert (grown.places[:50] == first.places).all()
    doubled = mapped(120)
    assert fits == [50, 120] and doubled.digest != first.digest
    assert mapped(120).digest == doubled.digest and fits == [50, 120]


def test_a_map_that_is_made_while_its_vectors_are_removed_is_shown_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    vectors = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float16)
    stored = ImageVectors(np.array([b"%032d" % row for row in range(50)]), vectors, "scorer", "", tmp_path / "v.bin")
    stored.path.touch()
    fit = projection.fit
    monkeypatch.setattr(projection, "fit", lambda sample: (stored.path.unlink(), fit(sample))[1])
    assert made.picture_map(stored).places.shape == (50, 2) and list(tmp_path.iterdir()) == []
