"""Lakes and exports of Pairmill inside a source: never read, each with its reason, and nobody else's folder too."""

import pytest

from pairmill.ops.read.source import SourceError, open_source
from tests.worlds.samples import jpeg, write

LAKE = {
    "catalog.sqlite": b"SQLite format 3",
    "data/main/payloads/a.parquet": b"x",
    "reports/demo-1.html": "<p>A report.",
}
EXPORT = {"demo-v1-000000.tar": b"x", "a.jpg": jpeg()}


def below(folder, files):
    return {f"{folder}/{name}": content for name, content in files.items()}


def read(source):
    """What is read, and the reasons of what is not, by name."""
    units = [unit.uri.removeprefix(source.tree.root + "/") for unit in source.units()]
    ignored = {fault.item.removeprefix(source.tree.root + "/"): fault.reason for fault in source.ignored()}
    return units, ignored


OURS = [
    {".pairmill": "", **LAKE},
    {".pairmill": "", "more/a.jpg": jpeg()},
    LAKE,
]
OTHERS = [
    {"catalog.sqlite": b"SQLite format 3", "data/a.jpg": jpeg()},
    {"manifest.json": '{"name": "a web app"}', **EXPORT},
]


@pytest.mark.parametrize("files", OURS)
@pytest.mark.parametrize("place", ["made", "a/b/made"])
def test_what_pairmill_made_is_left_out_as_a_whole(tmp_path, files, place):
    write(tmp_path, {"photo.jpg": jpeg(), "a/b/x.jpg": jpeg(), **below(place, files)})
    units, ignored = read(open_source(str(tmp_path)))
    assert units == ["a/b/x.jpg", "photo.jpg"] and ignored == {place: "left_out"}


@pytest.mark.parametrize("files", OURS)
def test_it_is_refused_as_a_source_with_the_remedy(tmp_path, files):
    write(tmp_path, files)
    with pytest.raises(SourceError, match=r"is a lake or an export of Pairmill.*keep the lake outside of it"):
        open_source(str(tmp_path)).units()


@pytest.mark.parametrize("files", OTHERS)
def test_a_folder_that_only_has_such_names_is_read(tmp_path, files):
    write(tmp_path, below("theirs", files))
    units, ignored = read(open_source(str(tmp_path)))
    assert any(unit.endswith(".jpg") for unit in units) and "left_out" not in ignored.values()


def test_a_source_beside_a_catalog_in_a_lakes_folder_is_read(tmp_path):
    write(tmp_path, {**LAKE, ".pairmill": "", "photos/a.jpg": jpeg()})
    assert read(open_source(str(tmp_path / "photos"))) == (["a.jpg"], {})
