"""Every format from a local folder and from S3: the same documents, faults and bytes."""

import pytest

from infra.format_examples import EXAMPLES
from pairmill.ops.read.declared_formats import formats
from pairmill.ops.read.source import open_source
from tests.worlds.formats import files_of, shown
from tests.worlds.golden import check_golden
from tests.worlds.s3 import bucket, server, upload
from tests.worlds.samples import write

__all__ = ["bucket", "server"]  # fixtures


@pytest.mark.parametrize("format", formats())
def test_a_format_gives_the_same_from_s3_as_from_a_folder_and_is_found_by_its_content(tmp_path, bucket, format):
    write(tmp_path, files_of(format))
    upload(bucket, tmp_path, "in/")
    local, remote = open_source(str(tmp_path)), open_source("s3://corpus/in")
    assert {unit.format for unit in local.units()} == {unit.format for unit in remote.units()} == {format}
    found = shown(local, str(tmp_path))
    assert found == shown(remote, "s3://corpus/in")
    assert len(found) >= len(local.units())


@pytest.mark.parametrize("format", formats())
def test_what_a_format_gives_is_what_its_version_gave(tmp_path, format):
    """A mended reader counts its version up, so that what it read before is read again."""
    write(tmp_path, files_of(format))
    found = [
        [*about, [[*of[:2], bool(of[2]), of[3]] if isinstance(of, tuple) else of for of in items]]
        if isinstance(items, list)
        else [*about, items]
        for *about, items in shown(open_source(str(tmp_path)), str(tmp_path))
    ]
    check_golden(f"reader_{format}", formats()[format].version, found)


def test_all_formats_live_in_one_tree_and_each_takes_its_own(tmp_path):
    write(tmp_path, {f"{format}/{path}": data for format in formats() for path, data in files_of(format).items()})
    source = open_source(str(tmp_path))
    for unit in source.units():
        assert unit.uri.removeprefix(str(tmp_path)).split("/")[1] == unit.format
    assert source.ignored() == []
    assert {unit.format for unit in source.units()} == set(formats())


@pytest.mark.parametrize("format", formats())
def test_a_format_has_an_example_of_its_own(format):
    examples = EXAMPLES[format]
    assert examples
    for each in examples:
        assert each.what and each.images + each.links > 0
        assert all(path.startswith(each.source.split(".")[0]) for path in each.files())
