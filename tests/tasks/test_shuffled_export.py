"""Shuffled exports: complete, the same bytes on every machine, and written from shards that are read in their order."""

import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.opening import create_or_open
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export import shuffled_pictures
from pairmill.tasks.release.export.export import export
from tests.worlds.published import published

N = 40
EACH = "each(text1..text2, caption)"
# Exports the lake into a folder, with few rows a file and two files a pass; lists folders in the order that is asked.
SCRIPT = """
import os, sys
lake, to, order = sys.argv[1:]
listed, scanned = os.listdir, os.scandir
os.listdir = lambda *at: sorted(listed(*at), reverse=order == "backward")
from pairmill.catalog.lake.opening import create_or_open
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export import shuffled_pictures
of_dataset.TAR_ROWS, shuffled_pictures.BUCKETS = 7, 2
with create_or_open(lake) as opened:
    opened.execute(f"SET threads = {1 if order == 'backward' else 3}")
    of_dataset.export(opened, "small", 1, to, shuffle=5)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("shuffled") / "lake"
    published(place, pictures=N, cap=N, image_rules=())
    return place


@pytest.fixture
def lake(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    monkeypatch.setattr(of_dataset, "TAR_ROWS", 7)
    monkeypatch.setattr(shuffled_pictures, "BUCKETS", 2)
    with create_or_open(folder) as opened:
        yield opened


def tars(place: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(place.glob("*.tar"))}


def keys(place: Path) -> list[str]:
    """The samples' names in the order of the files."""
    found: list[str] = []
    for path in sorted(place.glob("*.tar")):
        with tarfile.open(path) as tar:
            found += [name.removesuffix(".jpg") for name in tar.getnames() if name.endswith(".jpg")]
    return found


def contents(place: Path) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    for path in place.glob("*.tar"):
        with tarfile.open(path) as tar:
            found |= {member.name: tar.extractfile(member).read() for member in tar}  # pyright: ignore
    return found


@pytest.mark.slow
def test_a_shuffle_holds_every_pair_once_with_its_own_picture_and_mixes_the_shards(lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path / "stored"))
    export(lake, "small", 1, str(tmp_path / "shuffled"), shuffle=5)
    stored, mixed = keys(tmp_path / "stored"), keys(tmp_path / "shuffled")
    assert sorted(mixed) == sorted(stored) and len(stored) == N
    assert contents(tmp_path / "shuffled") == contents(tmp_path / "stored")
    shard = dict(lake.query("SELECT p.image_id, c.shard FROM pairs p JOIN image_content c USING (sha256)"))
    changes = [sum(shard[a] != shard[b] for a, b in pairwise(run)) for run in (stored, mixed)]
    assert changes[0] < 6 and changes[1] > 15


@pytest.mark.slow
def test_two_machines_write_the_same_bytes(folder: Path, tmp_path: Path):
    """Other locales, seeds of Python's hash, orders of listing, time zones and numbers of threads."""
    settings = {"forward": ("C", "0"), "backward": ("en_US.UTF-8", "4711")}
    for order, (locale, seed) in settings.items():
        environment = {**os.environ, "LC_ALL": locale, "LANG": locale, "PYTHONHASHSEED": seed, "TZ": f"XXX{seed[0]}"}
        command = [sys.executable, "-c", SCRIPT, str(folder), str(tmp_path / order), order]
        subprocess.run(command, env=environment, check=True, timeout=120)
    assert tars(tmp_path / "forward") == tars(tmp_path / "backward")
    assert len(tars(tmp_path / "forward")) == 6


@pytest.mark.slow
def test_another_seed_gives_another_order_and_has_a_folder_of_its_own(lake: Lake, tmp_path: Path):
    export(lake, "small", 1, str(tmp_path / "a"), shuffle=5)
    export(lake, "small", 1, str(tmp_path / "b"), shuffle=6)
    assert keys(tmp_path / "a") != keys(tmp_path / "b")
    with pytest.raises(PairmillError, match=r"holds the export of small@1 as webdataset shuffled by 5\. Give another"):
        export(lake, "small", 1, str(tmp_path / "a"), shuffle=6)


class Stopped(Exception):
    pass


@pytest.mark.slow
def test_a_stopped_shuffle_goes_on_behind_its_finished_files(lake: Lake, tmp_path: Path):
    def stop(done: int, total: int) -> None:
        if done >= 21:
            raise Stopped

    export(lake, "small", 1, str(tmp_path / "undisturbed"), shuffle=5)
    with pytest.raises(Stopped):
        export(lake, "small", 1, str(tmp_path / "out"), progress=stop, shuffle=5)
    assert len(tars(tmp_path / "out")) == 3
    first = tmp_path / "out" / "small-v1-000000.tar"
    os.utime(first, (1, 1))
    export(lake, "small", 1, str(tmp_path / "out"), shuffle=5)
    assert tars(tmp_path / "out") == tars(tmp_path / "undisturbed")
    assert first.stat().st_mtime == 1


def test_a_pass_reads_each_shard_once_and_holds_the_pictures_of_its_files_alone(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    read: list[tuple[str, int]] = []

    def counted(shard, shas, paths):
        read.append((shard, len(shas)))
        return stored(shard, shas, paths)

    stored = shuffled_pictures.stored_pictures
    monkeypatch.setattr(shuffled_pictures, "stored_pictures", counted)
    export(lake, "small", 1, str(tmp_path), shuffle=5)
    passes = [read[n : n + 3] for n in range(0, len(read), 3)]
    assert [[shard for shard, _ in each] for each in passes] == 3 * [["shard-0", "shard-1", "shard-2"]]
    assert [sum(n for _, n in each) for each in passes] == [14, 14, 12]


def test_a_full_disk_for_temporary_files_ends_it_with_the_remedy(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    opened = Path("/dev/full").open
    monkeypatch.setattr(shuffled_pictures.tempfile, "TemporaryFile", lambda dir: opened("r+b", 0))
    with pytest.raises(PairmillError, match=r"cannot write its temporary files in .*No space left.*Make room"):
        export(lake, "small", 1, str(tmp_path), shuffle=5)
    assert not tars(tmp_path)


@pytest.mark.parametrize("form", ["parquet", "texts"])
def test_tables_are_shuffled_alike(form, lake: Lake, tmp_path: Path):
    for name in ("a", "b"):
        export(lake, "small", 1, str(tmp_path / name), form, shuffle=5)
    (a,), (b,) = ((tmp_path / name).glob("*.parquet") for name in ("a", "b"))
    assert a.read_bytes() == b.read_bytes()
    rows = pq.read_table(a).to_pylist()
    ids = [row["image_id"] for row in rows]
    assert len(set(ids)) == N and ids != sorted(ids)
    assert form == "texts" or all(row["image"]["path"].partition(".")[0] == row["image_id"] for row in rows)


def test_each_text_of_a_pair_is_a_sample_of_its_own(lake: Lake, tmp_path: Path):
    found = export(lake, "small", 1, str(tmp_path / "out"), text=EACH, shuffle=5)
    names = [f"{image_id}-{column}" for (image_id,) in lake.query("SELECT image_id FROM pairs")
             for column in ("text1", "text2", "caption")]  # fmt: skip
    assert sorted(keys(tmp_path / "out")) == sorted(names) and found.rows == 3 * N
    held = contents(tmp_path / "out")
    texts = {column: held[next(name for name in held if name.endswith(f"-{column}.txt"))].decode() for column in
             ("text1", "text2", "caption")}  # fmt: skip
    assert texts["caption"] == "A coloured field." and len(set(texts.values())) == 3
    with pytest.raises(PairmillError, match="each text is taken once, so 'caption \\* 2' has no weight"):
        export(lake, "small", 1, str(tmp_path / "other"), text="each(text1, caption * 2)")
