"""Clusters are named by the terms that set them apart."""

from pathlib import Path

import duckdb

from pairmill.catalog.queries.gallery.gallery_query import Gallery


def gallery(path: Path, images: list[tuple[int | None, list[str] | None, str | None]]) -> Gallery:
    with duckdb.connect(str(path)) as made:
        made.execute("CREATE TABLE images (image_id VARCHAR, cluster INTEGER, _tags VARCHAR[], _text1 VARCHAR)")
        for n, row in enumerate(images):
            made.execute("INSERT INTO images VALUES (?, ?, ?, ?)", (f"{n:032x}", *row))
    return Gallery(path)


def test_a_cluster_is_named_by_what_its_pictures_have_and_others_lack(tmp_path: Path):
    common = ["photo"]
    images = [
        *[(1, [*common, "lighthouse"], "Nobody reads the text of a picture with tags") for _ in range(6)],
        *[(2, None, "A sleeping kitten with its basket") for _ in range(6)],
        *[(3, None, None) for _ in range(3)],
        *[(None, [*common, "lighthouse"], "Never counted") for _ in range(9)],
    ]
    opened = gallery(tmp_path / "g", images)
    names = opened.cluster_names([1, 2, 3, 99])
    assert names[1] == "lighthouse, photo" and names[2] == "basket, kitten, sleeping"
    assert (names[3], names[99]) == ("", "") and opened.cluster_names([]) == {}
    opened.close()


def test_a_term_of_one_picture_names_no_larger_cluster(tmp_path: Path):
    images = [(1, ["boat"], "Xylophone"), (1, ["boat"], None), (2, ["tree"], None), (2, ["tree"], None)]
    opened = gallery(tmp_path / "g", images)
    assert opened.cluster_names([1, 2]) == {1: "boat", 2: "tree"}
    opened.close()
