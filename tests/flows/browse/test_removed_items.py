"""A browser that is open while another process removes a picture shows nothing of it any more, nor finds its vector."""

import gc
from contextlib import suppress
from pathlib import Path

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.lake.side_folders import reports_folder
from pairmill.catalog.terms.ids import content_id
from pairmill.catalog.upkeep.taken_items import Subject
from pairmill.flows.browse import browsed_lake
from pairmill.tasks.upkeep.removal import take_down
from tests.worlds.browsed import browsed, ids, rows, text
from tests.worlds.published import picture, published


def in_use(lake: Path) -> set[str]:
    """Return the files of a lake's cache of pages that this process has open or mapped."""
    found = [line.partition(" /")[2] for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()]
    for path in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # the one that lists the folder
            found.append(str(path.readlink()))
    return {each for each in found if f"{lake}/.browse/" in f"/{each.lstrip('/')}"}


@pytest.mark.slow
def test_pictures_vectors_and_galleries_are_forgotten_after_a_removal_by_another_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(browsed_lake, "LOOKED_SECONDS", 0.0)
    published(tmp_path / "lake")
    with create_or_open(tmp_path / "lake") as lake:
        vectors = "SELECT sha256, unhex(repeat('003c', 8)) AS image_vector, shard, digest AS scorer, 1 AS commit"
        lake.execute(
            f"INSERT INTO image_embedding BY NAME {vectors} FROM image_content, scorers WHERE name = 'image_embedding'"
        )
    taken, other = content_id(picture(4)), content_id(picture(5))
    image = rows(tmp_path / "lake", f"SELECT image_id FROM images WHERE sha256 = '{taken}'")[0][0]
    with browsed(tmp_path / "lake") as pages:
        for dataset in ("", "small@1"):
            like = f"/gallery?dataset={dataset}&like={other}"
            assert image in ids(pages.gallery(like)) and pages.page(f"/item/{image}") is not None
        assert pages.client.get(f"/picture/small/{taken}").headers["content-type"] == "image/jpeg"
        assert len(in_use(tmp_path / "lake")) > 1
        with create_or_open(tmp_path / "lake") as lake:
            take_down(lake, Subject(pictures=(taken,)), "test", reports_folder(lake.uri))
        assert pages.client.get(f"/picture/small/{taken}").headers["content-type"] == "image/svg+xml"
        gc.collect()
        assert not in_use(tmp_path / "lake")
        pages.page(f"/item/{image}", 404)
        for dataset in ("", "small@1"):
            found = ids(pages.gallery(f"/gallery?dataset={dataset}&like={other}"))
            assert found and image not in found
            fault = text(pages.page(f"/gallery?dataset={dataset}&like={taken}", 400).find_class("fault")[0])
            assert "has no vector here" in fault
