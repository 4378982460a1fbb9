"""S3 that refuses, breaks off and is slow: the same documents as from a folder, and what was asked again is counted."""

import io
import tarfile

import pytest

from pairmill.ops.fault import Fault
from pairmill.ops.read.places import retries, s3
from pairmill.ops.read.source import SourceError, open_source
from tests.fuzz.inputs import seeds
from tests.worlds.formats import SHAPES, shown
from tests.worlds.s3 import bucket, fresh_filesystem, server
from tests.worlds.s3_fast import fill, quick
from tests.worlds.samples import everything, jpeg, write
from tests.worlds.unwell import unwell

__all__ = ["bucket", "quick", "server"]  # fixtures


def tree_of(n_keys: int) -> dict[str, bytes]:
    """Every format once, and captioned pictures up to ``n_keys``."""
    good = seeds()
    files = {f"{format}/{name}": good[name] for format, names in SHAPES.items() for name in names}
    n = 0
    while len(files) < n_keys:
        files[f"photos/{n % 50:02}/{n:05}.jpg"] = jpeg(f"#{n:06x}")
        files[f"photos/{n % 50:02}/{n:05}.txt"] = f"Caption {n}.".encode()
        n += 1
    return files


@pytest.mark.slow
@pytest.mark.parametrize(("n_keys", "share"), [(150, 0.3), pytest.param(2100, 0.06, marks=pytest.mark.full)])
def test_of_a_large_bucket_nothing_is_lost_when_requests_fail_and_retries_are_counted(
    tmp_path, server, bucket, quick, monkeypatch, n_keys, share
):
    files = tree_of(n_keys)
    write(tmp_path, files)
    fill(files)
    with unwell(server, share) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fresh_filesystem()
        before = retries.count()
        remote = open_source("s3://corpus")
        found = shown(remote, "s3://corpus")
        assert found == shown(open_source(str(tmp_path)), str(tmp_path))
        assert len(found) > n_keys / 2
        assert min(proxy.done[ill] for ill in ("500", "503", "reset", "cut", "slow")) > 10
        # A connection that was kept open and is closed when used again is mended by aiohttp itself, which tells nobody.
        assert proxy.done["500"] + proxy.done["503"] <= retries.count() - before <= proxy.n_failed
    fresh_filesystem()


@pytest.mark.slow
def test_the_answer_that_there_is_no_such_object_may_break_off_too(server, bucket, quick, monkeypatch):
    fill({f"{n:03}.jpg": jpeg(f"#{n:06x}") for n in range(40)})  # each is asked for two files beside it
    monkeypatch.setattr("tests.worlds.unwell.ILLS", ("cut",))
    with unwell(server, share=0.3) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fresh_filesystem()
        found = list(everything(open_source("s3://corpus")))
        assert len(found) == 40 and not [each for each in found if isinstance(each, Fault)]
        assert proxy.done["cut"] > 20
    fresh_filesystem()


@pytest.mark.slow
def test_large_files_that_break_off_are_read_on_and_never_end_early(tmp_path, server, bucket, quick, monkeypatch):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for n in range(40):
            data = jpeg("red") + bytes(300_000) + str(n).encode()
            info = tarfile.TarInfo(f"{n:04}.jpg")
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    lines = b"".join(b'{"url": "https://x.example/%d.jpg", "caption": "%s"}\n' % (n, b"x" * 900) for n in range(12_000))
    files = {"w.tar": out.getvalue(), "u.jsonl": lines}
    write(tmp_path, files)
    fill(files)
    with unwell(server, share=0.4) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        monkeypatch.setenv("AWS_MAX_ATTEMPTS", "12")
        monkeypatch.setattr(s3, "WAITS", (0.005,) * 12)
        fresh_filesystem()
        assert shown(open_source("s3://corpus"), "s3://corpus") == shown(open_source(str(tmp_path)), str(tmp_path))
        assert proxy.n_failed > 0
    fresh_filesystem()


@pytest.mark.parametrize(
    "name", ["u.parquet", "i.parquet", "o.parquet", "u.jsonl", "u.csv", "w.tar", "c.warc.gz", "a.png"]
)
def test_a_place_that_falls_ill_for_good_stops_the_reading_and_nothing_is_taken_for_damaged(
    tmp_path, server, bucket, quick, monkeypatch, name
):
    fill({name: seeds()[name]})
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "2")
    with unwell(server, share=0) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.address)
        fresh_filesystem()
        source = open_source("s3://corpus")
        units = source.units()
        proxy.share = 1
        monkeypatch.setattr("tests.worlds.unwell.ILLS", ("500", "503", "reset", "cut"))
        with pytest.raises(SourceError, match="run again, what is finished is kept"):
            assert not [each for unit in units for each in source.read(unit) if isinstance(each, Fault)]
        proxy.share = 0
        assert [each for each in everything(source) if not isinstance(each, Fault)]
    fresh_filesystem()
