"""Write pairs as a WebDataset tar: an image, a .json and a .txt file of one base name for each pair."""

import io
import json
import tarfile
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pairmill.catalog.ask.exports import PAIR_COLUMNS
from pairmill.tasks.out.destination import HashingFile
from pairmill.tasks.out.pictures import pictures

_EXTENSION = {"jpeg": "jpg", "tiff": "tif"}


@dataclass(frozen=True)
class Sample:
    """The columns of a row that make a sample: its base name, the text of its .txt, and the columns of its .json."""

    name: str = "image_id"
    text: str = "text1"
    columns: tuple[str, ...] = PAIR_COLUMNS


PAIR = Sample()


def write_tar(
    rows: list[dict[str, Any]], paths: dict[str, tuple[str, ...]], out: HashingFile, sample: Sample = PAIR
) -> None:
    """Write rows, sorted by shard, as samples; ``paths`` are the files with the images' bytes, by shard.

    Memory is the images that these rows take from one shard. The tar's bytes depend on the rows alone. Raises
    PairmillError when an image's bytes are gone or cannot be read.
    """
    stream: Any = out  # mode `w|` never reads or seeks
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for shard, group in groupby(rows, key=lambda row: row["shard"]):
            pairs = list(group)
            found = pictures(shard, (pair["sha256"] for pair in pairs), paths)
            for pair in pairs:
                _add_sample(tar, pair, found[pair["sha256"]], sample)


def _add_sample(tar: tarfile.TarFile, pair: dict[str, Any], picture: bytes, sample: Sample) -> None:
    """Append one WebDataset sample: three adjacent files of one base name."""
    columns = {name: pair[name] for name in (*sample.columns, "captions") if name in pair}
    members = {
        _EXTENSION.get(pair["format"], pair["format"]): picture,
        "json": json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode(),
        "txt": (pair[sample.text] or "").encode(),
    }
    for extension, data in members.items():
        member = tarfile.TarInfo(f"{pair[sample.name]}.{extension}")
        member.size = len(data)  # the defaults are reproducible: owner, group and time 0, mode 0644

        tar.addfile(member, io.BytesIO(data))
