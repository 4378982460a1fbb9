"""A report of a dataset that is too large reads a sample of it."""

from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.queries.datasets import find
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.queries.gallery.gallery_file import gallery_file, temporary_gallery_file
from pairmill.catalog.queries.gallery.gallery_query import Gallery
from tests.worlds.published import published


@pytest.mark.slow
def test_a_sample_of_a_dataset_has_the_rows_of_its_smallest_ids_and_is_removed(tmp_path: Path):
    def rows_of(path: Path) -> list[dict]:
        with Gallery(path) as gallery:
            return gallery.rows("SELECT * FROM images ORDER BY image_id")

    published(tmp_path / "lake", pictures=30, cap=3, clusters=3)
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        dataset = find(lake, "small@1")
        with temporary_gallery_file(lake, dataset, plan_of(lake, dataset), 10) as path:
            part = rows_of(path)
        with temporary_gallery_file(lake, dataset, plan_of(lake, dataset), 30) as other:
            not_sampled = rows_of(other)
        whole = rows_of(gallery_file(lake, dataset))
    assert part == whole[:10] and not_sampled == whole and len(whole) == 30
    assert not path.exists() and not other.exists()
