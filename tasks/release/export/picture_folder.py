"""Write an export as a folder for small trainers: pictures under their own names, a `.txt` beside each.

The folder has pictures, captions and `metadata.jsonl` alone. The export's own files are in its hidden folder RECORD:
mark, manifest, card, checksums, and the lists of the written files. By these lists a repeated export distinguishes its
own files from those that a user added or edited, which it never overwrites or removes.
"""

import errno
import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import PurePosixPath
from typing import Any, Literal

from PIL import Image, ImageOps

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.ops.fault import Fault
from pairmill.ops.image.pixels import pixels_of
from pairmill.tasks.release.export.destination import CHECKSUMS, MANIFEST, PROGRESS, Destination, HashingFile, Written
from pairmill.tasks.release.export.pictures import Pictured, Row

RECORD = ".pairmill-folder"
METADATA = "metadata.jsonl"
EARLIER, SIZES = ".earlier.jsonl", ".sizes.json"
JPEG = b"\xff\xd8"
STEP = 64  # pixels: sides of buckets are multiples, as kohya's sd-scripts and OneTrainer use


@dataclass(frozen=True)
class FolderOptions:
    """Options of a folder for trainers.

    Attributes:
        pictures: How pictures get there: copied, hard-linked to the files of a local source, or staying where they are,
            in the source's folder, which is then the folder of the export.
        trigger: Word to put before each caption that lacks it, with a comma.
        prefix: Text directly before each caption.
        suffix: Text directly behind each caption.
        bucket: Resize pictures to this side: its square is the largest area, each side a multiple of 64, the rest is
            cropped. None leaves every byte as it is.
    """

    pictures: Literal["copy", "link", "stay"] = "copy"
    trigger: str = ""
    prefix: str = ""
    suffix: str = ""
    bucket: int | None = None

    def __post_init__(self) -> None:
        if self.bucket is not None and (self.bucket < STEP or self.pictures != "copy"):
            remedy = "leave one of the two out" if self.pictures != "copy" else f"give {STEP} pixels or more"
            raise PairmillError(f"--bucket {self.bucket} writes resized copies of pictures; {remedy}.")

    @staticmethod
    def names() -> tuple[str, ...]:
        """Return the names of the options."""
        return tuple(field.name for field in fields(FolderOptions))

    def given(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {name: value for name, value in asdict(self).items() if value != getattr(FolderOptions, name)}

    def captioned(self, texts: Sequence[str]) -> str:
        """Return the content of a `.txt`: each text on a line of its own, with trigger, prefix and suffix."""
        lines = []
        for text in (" ".join(each.split()) for each in texts):
            line = f"{self.prefix}{text}{self.suffix}" if text else ""
            has_trigger = not self.trigger or re.search(rf"(?<!\w){re.escape(self.trigger)}(?!\w)", line)
            lines.append(line if has_trigger else f"{self.trigger}, {line}".removesuffix(", "))
        return "\n".join(filter(None, lines or [self.trigger]))


def in_bucket(data: bytes, side: int) -> bytes:
    """Return the picture of ``data`` resized to a bucket: sides multiples of STEP, their product at most ``side``².

    The picture is upright, covers the bucket and is cropped at the centre; it is not enlarged beyond one STEP. A JPEG
    stays one, of quality 95; others become PNG. Raises PairmillError if it does not decode.
    """
    pixels = pixels_of(data)
    if isinstance(pixels, Fault):
        raise PairmillError(f"a picture cannot be resized: {pixels.detail}. Leave --bucket out, or drop the picture.")
    image = Image.fromarray(pixels)
    scale = min(1.0, side / (image.width * image.height) ** 0.5)
    width, height = (max(STEP, int(each * scale) // STEP * STEP) for each in image.size)
    out = io.BytesIO()
    fitted = ImageOps.fit(image, (width, height), Image.Resampling.LANCZOS)
    fitted.save(out, "JPEG" if data.startswith(JPEG) else "PNG", quality=95)
    return out.getvalue()


class PictureFolder:
    """Writer of one export's folder ``place``; its ``record`` is in `RECORD`."""

    def __init__(self, place: Destination, record: Destination, options: FolderOptions) -> None:
        self.place, self.record, self.options = place, record, options
        self.kept = self.copied = self.elsewhere = self.texts = 0
        self._earlier: dict[str, str] = {}

    def begin(self, head: dict[str, Any]) -> None:
        """Read which files earlier states of the export wrote, such as before a takedown; call it before any `write`.

        ``head`` is the content that will be written (`head_of`).
        """
        held = next(filter(None, map(self.record.read_json, (MANIFEST, PROGRESS))), {})
        names, is_new = self.record.names(), any(held.get(key, value) != value for key, value in head.items())
        lists = [name for name in names if name.endswith(".jsonl") and (is_new or name == EARLIER)]
        self._earlier = dict(self._lines_of(lists))
        if is_new and lists:
            with self.record.file(EARLIER) as out:
                for name, sha256 in self._earlier.items():
                    out.write(json.dumps({"written": {name: sha256}}).encode() + b"\n")

    def _lines_of(self, names: Sequence[str]) -> Iterator[tuple[str, str]]:
        """Yield (file name, sha256) of the files that the record's lists ``names`` name."""
        for name in names:
            for line in self.record.lines(name):
                yield from json.loads(line)["written"].items()

    def holds(self, listed: Written) -> bool:
        """Return whether the folder has every file of the record's list ``listed``."""
        return all(self.place.has(name) for name, _ in self._lines_of([listed.name]))

    def write(self, rows: list[Row], texts_of: Callable[[Row], list[str]], pictured: Pictured, out: HashingFile) -> int:
        """Write the pictures of ``rows`` with their texts, and the list of them to ``out``; return the number."""
        n = 0
        for row, name, data, linked in self._pictures(rows, pictured):
            caption = self.options.captioned(texts_of(row))
            self.texts += bool(caption)
            written = {name: linked} if linked else {} if data is None else {name: self._put(name, data)}
            if caption:
                beside = f"{PurePosixPath(name).with_suffix('.txt')}"
                written[beside] = self._put(beside, caption.encode())
            about = {"file_name": name, "text": caption, "caption_source": row["captioner"] or ""}
            about |= {"image_id": row["image_id"]} | ({"split": row["split"]} if row.get("split") else {})
            about["written"] = written
            out.write(json.dumps(about, ensure_ascii=False).encode() + b"\n")
            n += 1
        return n

    def _pictures(self, rows: list[Row], pictured: Pictured) -> Iterator[tuple[Row, str, bytes | None, str]]:
        """Yield each row with its file's name, the bytes to write (None: no copy), and the sha256 of a linked file."""
        if self.options.pictures == "copy":
            for row, data in pictured(rows):
                name = row["file_name"]
                if self.options.bucket:
                    data = in_bucket(data, self.options.bucket)
                    name = str(PurePosixPath(name).with_suffix(".jpg" if data.startswith(JPEG) else ".png"))
                yield row, name, data, ""
            return
        left = []
        for row in rows:
            name, sha256 = row["file_name"], _local_sha256(row["local"], row["sha256"])
            if self.options.pictures == "stay":
                inside = sha256 and os.path.realpath(row["local"]).startswith(f"{os.path.realpath(self.place.uri)}/")
                if not inside:
                    self.elsewhere += 1
                    continue
                name = os.path.relpath(os.path.realpath(row["local"]), os.path.realpath(self.place.uri))
                sha256 = ""  # the file is the user's
            elif not sha256:
                left.append(row)
                continue
            elif not self.place.has(name):
                self._link(row["local"], name)
            yield row, name, None, sha256
        for row, data in pictured(left) if left else ():
            self.copied += 1
            yield row, row["file_name"], data, ""

    def _link(self, source: str, name: str) -> None:
        """Hard-link the file ``source`` under ``name``. Raises PairmillError if the file system refuses."""
        target = os.path.join(self.place.uri, name)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.link(source, target)
        except OSError as error:
            why = "they are on different disks" if error.errno == errno.EXDEV else error.strerror
            raise PairmillError(
                f"'{source}' cannot be hard-linked into '{self.place.uri}': {why}. Give --to a folder on the disk of "
                "the pictures, or write --pictures copy."
            ) from error

    def _put(self, name: str, data: bytes) -> str:
        """Write a file, unless a user has put or edited one of this name; return the sha256 of ``data``."""
        wanted = hashlib.sha256(data).hexdigest()
        there = self.place.sha256_of(name)
        if there not in ("", wanted, self._earlier.get(name)):
            self.kept += 1
        elif there != wanted:
            with self.place.file(name) as out:
                out.write(data)
        return wanted

    def finish(self, files: list[Written]) -> None:
        """Write `metadata.jsonl` and the checksums, and remove the export's files that it no longer has."""
        before, n_bytes, n_files = self.record.read_json(SIZES).get(METADATA, ""), 0, 0
        names: set[str] = set()
        there = self.place.sha256_of(METADATA)
        with self.record.file(CHECKSUMS) as sums, self.record.file(f"{METADATA}.new") as made:
            for listed in files:
                for line in self.record.lines(listed.name):
                    row = json.loads(line)
                    written = row.pop("written")
                    made.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                    sums.write("".join(f"{sha}  {name}\n" for name, sha in written.items()).encode())
                    names.update(written if self._earlier else ())
                    n_files += len(written)
        new = made.written(METADATA, 0).sha256
        if there in ("", before, new):
            with self.place.file(METADATA) as out:
                for line in self.record.lines(f"{METADATA}.new"):
                    out.write(line)
        else:
            self.kept += 1
        self.record.remove(f"{METADATA}.new")
        for name, sha256 in self._earlier.items():
            if name not in names and (there := self.place.sha256_of(name)):
                if there == sha256:
                    self.place.remove(name)
                else:
                    self.kept += 1
        for line in self.record.lines(CHECKSUMS):
            n_bytes += self.place.size_of(line[66:].decode().rstrip("\n"))
        self.record.write_json(SIZES, {METADATA: new, "files": n_files, "bytes": n_bytes})
        self.record.remove(EARLIER)

    def size(self) -> tuple[int, int]:
        """Return the number of written files and their bytes, of a finished folder."""
        sizes = self.record.read_json(SIZES)
        return sizes.get("files", 0), sizes.get("bytes", 0)

    def notes(self, n_rows: int) -> Iterator[str]:
        """Yield notes on what the folder lacks, or has of the user's own. Raises PairmillError if it has none."""
        if self.kept:
            yield f"{self.kept:,} files of the folder are yours, or edited by you: they stay as they are"
        if self.copied:
            yield f"{self.copied:,} pictures have no unchanged file on this machine to link to: they are copied"
        if self.elsewhere and not n_rows:
            raise PairmillError(
                f"none of {self.elsewhere:,} pictures lies in '{self.place.uri}' unchanged. --pictures stay writes "
                "captions beside pictures: give the source's folder to --to, or write --pictures copy."
            )
        if self.elsewhere:
            yield f"{self.elsewhere:,} pictures do not lie in this folder unchanged: they are left out"
        if n_rows and not self.texts:
            yield "no picture has this text, so no .txt is written; choose another, such as --text caption or alt_text"


def _local_sha256(path: str | None, content: str) -> str:
    """Return the sha256, in 64 hex digits, of the local file ``path`` if it holds the picture ``content``, else ''."""
    with suppress(OSError, ValueError):
        if path:
            with open(path, "rb") as file:
                data = file.read()
            return hashlib.sha256(data).hexdigest() if content_id(data) == content else ""
    return ""
