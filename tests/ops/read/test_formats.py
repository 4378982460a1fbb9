"""Every format from a local folder and from S3: the same documents, faults and bytes."""

import pytest

from pairmill.ops.read.source import FORMATS, open_source
from tests.fuzz.inputs import seeds
from tests.worlds.formats import GROUPS, shown
from tests.worlds.golden import check_golden
from tests.worlds.s3 import bucket, server, upload
from tests.worlds.samples import write

__all__ = ["bucket", "server"]  # fixtures


@pytest.mark.parametrize("format", GROUPS)
def test_a_format_gives_the_same_from_s3_as_from_a_folder_and_is_found_by_its_content(tmp_path, bucket, format):
    good = seeds()
    write(tmp_path, {name: good[name] for name in GROUPS[format]})
    upload(bucket, tmp_path, "in/")
    local, remote = open_source(str(tmp_path)), open_source("s3://corpus/in")
    assert {unit.format for unit in local.units()} == {unit.format for unit in remote.units()} == {format}
    found = shown(local, str(tmp_path))
    assert found == shown(remote, "s3://corpus/in")
    assert len(found) >= len(GROUPS[format])


@pytest.mark.parametrize("format", FORMATS)
def test_what_a_format_gives_is_what_its_version_gave(tmp_path, format):
    """A mended reader counts its version up, so that what it read before is read again."""
    good = seeds()
    write(tmp_path, {name: good[name] for name in GROUPS[format]})
    found = [
        [*about, [[*of[:2], bool(of[2]), of[3]] if isinstance(of, tuple) else of for of in items]]
        if isinstance(items, list)
        else [*about, items]
        for *about, items in shown(open_source(str(tmp_path)), str(tmp_path))
    ]
    check_golden(f"reader_{format}", FORMATS[format].version, found)


def test_all_formats_live_in_one_tree_and_each_takes_its_own(tmp_path):
    good = seeds()
    write(tmp_path, {f"{format}/{name}": good[name] for format, names in GROUPS.items() for name in names})
    source = open_source(str(tmp_path))
    for unit in source.units():
        assert unit.uri.removeprefix(str(tmp_path)).split("/")[1] == unit.format
    assert source.ignored() == []
    assert {unit.format for unit in source.units()} == set(GROUPS)
