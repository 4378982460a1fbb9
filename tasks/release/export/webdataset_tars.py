"""Write rows as a WebDataset tar: a .jpg, a .json and a .txt file of one base name for each row."""

import io
import json
import tarfile
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.schema import columns
from pairmill.tasks.release.export.destination import HashingFile
from pairmill.tasks.release.export.pictures import Pictured
from pairmill.tasks.release.export.text_choice import TextChoice

# One ending for every picture format: `datasets` takes the fields of all samples from the first five, and loaders set
# to `jpg` skip samples without it. Decoders go by the first bytes, not by the ending.
PICTURE = "jpg"


@dataclass(frozen=True)
class Sample:
    """The columns of a row that make a sample: its base name, the text of its .txt, and the columns of its .json."""

    name: str = "image_id"
    text: str | TextChoice = "text1"
    columns: tuple[str, ...] = tuple(columns("pairs"))


PAIR = Sample()


def write_tar(rows: list[dict[str, Any]], pictured: Pictured, out: HashingFile, sample: Sample = PAIR) -> None:
    """Write rows as samples, with the pictures that ``pictured`` yields for them.

    The tar's bytes depend on the rows alone. Memory and errors are those of ``pictured``.
    """
    stream: Any = out  # mode `w|` never reads or seeks
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for row, picture in pictured(rows):
            _add_sample(tar, row, picture, sample)


def _add_sample(tar: tarfile.TarFile, row: dict[str, Any], picture: bytes, sample: Sample) -> None:
    """Append one WebDataset sample: three adjacent files of one base name."""
    columns = {name: row[name] for name in (*sample.columns, "captions", "text_column") if name in row}
    members = {
        PICTURE: picture,
        "json": json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode(),
        "txt": _text(row, sample).encode(),
    }
    for extension, data in members.items():
        member = tarfile.TarInfo(f"{row[sample.name]}.{extension}")
        member.size = len(data)  # the defaults are reproducible: owner, group and time 0, mode 0644

        tar.addfile(member, io.BytesIO(data))


def _text(row: dict[str, Any], sample: Sample) -> str:
    """Return the text of a row's .txt."""
    return row[sample.text] or "" if isinstance(sample.text, str) else sample.text.text_of(row)
