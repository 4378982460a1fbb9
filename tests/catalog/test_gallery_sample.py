"""A report of a dataset that is too large reads a sample of it."""

from pathlib import Path

from pairmill.catalog.ask.datasets import find
from pairmill.catalog.ask.gallery_file import gallery_file
from pairmill.catalog.ask.gallery_query import Gallery
from pairmill.catalog.lake.opening import create_or_open
from tests.worlds.published import published


def test_a_sample_of_a_dataset_has_the_rows_of_its_smallest_ids(tmp_path: Path):
    published(tmp_path / "lake", pictures=30, cap=3, clusters=3)
    with create_or_open(tmp_path / "lake", read_only=True) as lake:
        dataset = find(lake, "small@1")
        found = [Gallery(gallery_file(lake, dataset, most)) for most in (None, 10, 1000)]
    whole, part, not_sampled = (gallery.rows("SELECT * FROM images ORDER BY image_id") for gallery in found)
    assert part == whole[:10] and not_sampled == whole and len(whole) == 30
