"""Megatron-Energon 7.4, in an environment of its own, reads an export whole: every picture with its text."""

import json
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from pairmill.catalog.lake.opening import create_or_open
from pairmill.tasks.release.export import export as of_dataset
from pairmill.tasks.release.export.export import export
from tests.worlds.energon import energon_python
from tests.worlds.published import published

N = 12  # pictures of three formats, in equal parts
# Prepares each folder of tars as a trainer does, with the ending or endings of the pictures, and reads it whole. Prints
# (key, caption, shape) of each sample as a JSON list, a line for each (folder, endings) of its argument.
PROGRAM = """
import json, sys
from megatron.energon import WorkerConfig, get_loader, get_val_dataset
from megatron.energon.cli.main import main
worker = WorkerConfig(rank=0, world_size=1, num_workers=0)
for tars, pictures in json.loads(sys.argv[1]):
    sys.argv = ["energon", "prepare", tars, "--non-interactive", "--force-overwrite", "--split-ratio", "1,0,0",
                "--num-workers", "1", "--no-progress", "--sample-type", "CaptioningSample", "--field-map",
                json.dumps({"image": pictures, "caption": "txt"})]
    try:
        main()
    except SystemExit as ended:
        assert not ended.code, ended.code
    data = get_val_dataset(tars, split_part="train", worker_config=worker, batch_size=None)
    print("read", json.dumps([(each.__key__, each.caption, list(each.image.shape)) for each in get_loader(data)]))
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, tuple]]:
    """Two tars of a shuffled export, and (caption, height, width) of each pair by its id."""
    folder = tmp_path_factory.mktemp("energon")
    published(folder / "lake", pictures=N, cap=N, image_rules=())
    with pytest.MonkeyPatch.context() as patch, create_or_open(folder / "lake") as lake:
        patch.setattr(of_dataset, "TAR_ROWS", 7)
        export(lake, "small", 1, str(folder / "tars"), shuffle=3)
        rows = lake.query("SELECT image_id, text1, height, width FROM pairs")
    return folder / "tars", {key: tuple(about) for key, *about in rows}


def read(*asked: tuple[Path, str]) -> list[list[Any]]:
    """Prepare folders of tars, with the ending or endings of their pictures, and read them, in one process."""
    given = json.dumps([(str(tars), pictures) for tars, pictures in asked])
    command = [str(energon_python()), "-c", PROGRAM, given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=asked[0][0].parent)
    assert done.returncode == 0, done.stderr[-2000:]
    lines = [line.removeprefix("read ") for line in done.stdout.splitlines() if line.startswith("read ")]
    assert len(lines) == len(asked)
    return [json.loads(line) for line in lines]


@pytest.mark.slow  # a small environment is made, and torch imported
@pytest.mark.timeout(900)
def test_energon_reads_every_picture_once_and_skips_in_silence_what_lacks_a_named_ending(
    pairs: tuple[Path, dict[str, tuple]], tmp_path: Path
):
    tars, expected = pairs
    # The trap, by tars that name each picture after its format: a map of one ending loses the others without a word.
    other = tmp_path / "other"
    other.mkdir()
    n_jpeg = _by_format(tars, other / "pictures.tar")
    assert 0 < n_jpeg < N
    rows, lacking, whole = read((tars, "jpg"), (other, "jpg"), (other, "jpg,png,webp"))
    assert {key: (text, *shape[1:]) for key, text, shape in rows} == expected and len(rows) == N
    assert len(lacking) == n_jpeg
    assert {key for key, *_ in whole} == set(expected)


def _by_format(tars: Path, to: Path) -> int:
    """Copy tars into one, with pictures named by their formats; return how many of them are JPEG."""
    endings = {b"\xff\xd8": "jpg", b"\x89P": "png", b"RI": "webp"}
    n_jpeg = 0
    with tarfile.open(to, "w") as out:
        for path in sorted(tars.glob("*.tar")):
            with tarfile.open(path) as tar:
                for member in tar:
                    file = tar.extractfile(member)
                    assert file is not None
                    if member.name.endswith(".jpg"):
                        ending = endings[file.read(2)]
                        n_jpeg += ending == "jpg"
                        member.name = f"{member.name.removesuffix('.jpg')}.{ending}"
                        file.seek(0)
                    out.addfile(member, file)
    return n_jpeg
