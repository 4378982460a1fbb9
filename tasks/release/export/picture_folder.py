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
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from itertools import takewhile
from pathlib import PurePosixPath
from typing import Any, Literal

from PIL import Image, ImageOps

from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.ids import content_id
from pairmill.ops.fault import Fault
from pairmill.ops.image.pixels import pixels_of
from pairmill.tasks.release.export.destination import CHECKSUMS, Destination, ExportFile, Written
from pairmill.tasks.release.export.pictures import EXPORTED, Pictured, Row

RECORD = ".pairmill-folder"
METADATA = "metadata.jsonl"
EARLIER, PLANNED, SIZES = ".earlier.jsonl", ".planned.jsonl", ".sizes.json"
JPEG = b"\xff\xd8"
STEP = 64  # pixels: sides of buckets are multiples, as kohya's sd-scripts and OneTrainer use
Placing = Literal["copy", "link", "stay"]
Put = tuple[str, Callable[[str], None]]  # a file's sha256, and a function that writes it under a name
_NOTES = {
    "kept": "files of the folder are yours, or edited by you: they stay as they are",
    "copied": "pictures have no unchanged file on this machine to link to: they are copied",
    "elsewhere": "pictures do not lie in this folder unchanged: they are left out",
    "shared": "pictures have the name of another but for the suffix, and its .txt would be theirs: they are left out",
}


@dataclass(frozen=True)
class FolderOptions:
    """Options of a folder for trainers."""

    # how pictures get there: copied, hard-linked to the files of a local source, or staying where they are, in the
    # source's folder, which is then the folder of the export
    pictures: Placing = "copy"
    trigger: str = ""  # word to put before each caption that lacks it, with a comma
    prefix: str = ""  # text directly before each caption
    suffix: str = ""  # text directly behind each caption
    # resize pictures to this side: its square is the largest area, each side a multiple of 64, the rest is cropped.
    # None leaves every byte as it is.
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
    """Writer of one export's folder ``place``; its ``record`` is in `RECORD`.

    A line of a list in the record is a row of `metadata.jsonl` with ``written``, the sha256 of each file that is the
    export's, ``kept``, the names that are the user's, and ``note``, why the picture is copied or left out.
    """

    def __init__(self, place: Destination, record: Destination, options: FolderOptions) -> None:
        self.place, self.record, self.options = place, record, options
        self._earlier: dict[str, set[str]] = {}  # the first digits of sha256 of a name's states, '' for any
        self._stems: set[str] = set()

    def check(self, rows: Iterable[Row]) -> None:
        """Raise PairmillError if pictures shall stay, and none of ``rows`` lies in the folder."""
        there = (self._inside(row) and _local_sha256(row["local"], row["sha256"]) for row in rows)
        if self.options.pictures == "stay" and not any(there):
            raise PairmillError(
                f"no picture lies in '{self.place.uri}' unchanged. --pictures stay writes captions beside pictures: "
                "give the source's folder to --to, or write --pictures copy."
            )

    def begin(self) -> None:
        """Read which files earlier states of the export wrote, such as before a takedown; call it before any `write`.

        They stay known until `finish`, whatever happens to the lists meanwhile.
        """
        for row in self._rows_of([name for name in self.record.names() if name.endswith(".jsonl")]):
            for name, sha256 in row["written"].items():
                self._earlier.setdefault(name, set()).add(sha256)
        if self._earlier:
            with self.record.file(EARLIER) as out:
                for name, states in self._earlier.items():
                    out.write(b"".join(json.dumps({"written": {name: each}}).encode() + b"\n" for each in states))

    def _rows_of(self, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        """Yield the lines of the record's lists ``names``."""
        for name in names:
            yield from map(json.loads, self.record.lines(name))

    def holds(self, listed: Written) -> bool:
        """Return whether the folder has every file of the record's list ``listed``."""
        return all(self.place.has(name) for row in self._rows_of([listed.name]) for name in row["written"])

    def resumed(self, files: Sequence[Written]) -> list[Written]:
        """Return the first of the lists ``files`` that are complete; the names of their captions are taken."""
        held = list(takewhile(self.holds, files))
        rows = self._rows_of([each.name for each in held])
        self._stems = {_caption_file(row["file_name"]) for row in rows if "file_name" in row}
        return held

    def write(
        self, rows: list[Row], texts_of: Callable[[Row], dict[str, str]], pictured: Pictured, out: ExportFile
    ) -> int:
        """Write the pictures of ``rows`` with their texts, and the list of them to ``out``; return the number.

        ``texts_of`` returns the texts of a row by their columns.
        """
        self._plan(rows, texts_of)
        n = 0
        for row, name, put, note in self._pictures(rows, pictured):
            about: dict[str, Any] = {"note": note, "written": {}, "kept": []}
            if name:
                texts = texts_of(row)
                caption = self.options.captioned([*texts.values()])
                origin = ", ".join(row["captioner"] or each if each == "caption" else each for each in texts)
                about |= {"file_name": name, "text": caption, "caption_source": origin if caption else ""}
                about |= {"image_id": row["image_id"]} | ({"split": row["split"]} if row.get("split") else {})
                about |= {name: row[name] for name in EXPORTED}
                if put:
                    self._put(name, *put, about)
                if caption:
                    data = caption.encode()
                    wanted = hashlib.sha256(data).hexdigest()
                    self._put(_caption_file(name), wanted, partial(self.place.write, data=data), about)
                n += 1
            out.write(json.dumps(about, ensure_ascii=False).encode() + b"\n")
        return n

    def _plan(self, rows: list[Row], texts_of: Callable[[Row], dict[str, str]]) -> None:
        """Record the files of ``rows`` that are not there yet, so that a killed export knows what it wrote."""
        with self.record.file(PLANNED) as out:
            for row in rows:
                name, states = self._inside(row) if self.options.pictures == "stay" else row["file_name"], {}
                if self.options.bucket:
                    states = {f"{PurePosixPath(name).with_suffix(suffix)}": "" for suffix in (".jpg", ".png")}
                elif self.options.pictures != "stay":
                    states = {name: ""}  # its bytes are known once its metadata is removed
                caption = self.options.captioned([*texts_of(row).values()]).encode()
                states |= {_caption_file(name): hashlib.sha256(caption).hexdigest()} if name else {}
                new = {each: sha256 for each, sha256 in states.items() if not self.place.has(each)}
                out.write(json.dumps({"written": new}).encode() + b"\n")

    def _pictures(self, rows: list[Row], pictured: Pictured) -> Iterator[tuple[Row, str, Put | None, str]]:
        """Yield each row with its file's name ('': left out), how to write it (None: it is there), and a note."""
        left = rows if self.options.pictures == "copy" else []
        for row in rows if self.options.pictures == "stay" else ():
            name = self._inside(row)
            row |= {"exported_sha256": row["sha256"], "picture_metadata": "original"}
            if not name or not _local_sha256(row["local"], row["sha256"]):
                yield row, "", None, "elsewhere"
            elif _caption_file(name) in self._stems:
                yield row, "", None, "shared"
            else:
                self._stems.add(_caption_file(name))
                yield row, name, None, ""
        for row in rows if self.options.pictures == "link" else ():
            if sha256 := _local_sha256(row["local"], row["sha256"]):
                row |= {"exported_sha256": row["sha256"], "picture_metadata": "original"}
                yield row, row["file_name"], (sha256, partial(self._link, row["local"])), ""
            else:
                left.append(row)
        for row, data in pictured(left) if left else ():
            name, note = row["file_name"], "" if self.options.pictures == "copy" else "copied"
            if self.options.bucket:
                data = in_bucket(data, self.options.bucket)
                row |= {"exported_sha256": content_id(data), "picture_metadata": "stripped"}
                name = str(PurePosixPath(name).with_suffix(".jpg" if data.startswith(JPEG) else ".png"))
            yield row, name, (hashlib.sha256(data).hexdigest(), partial(self.place.write, data=data)), note

    def _inside(self, row: Row) -> str:
        """Return the path below the folder of a row's own file, '' if it is elsewhere."""
        path, root = os.path.realpath(row["local"] or ""), os.path.realpath(self.place.uri)
        return os.path.relpath(path, root) if path.startswith(f"{root}/") else ""

    def _link(self, source: str, name: str) -> None:
        """Hard-link the file ``source`` under ``name``. Raises PairmillError if the file system refuses."""
        target = os.path.join(self.place.uri, name)
        try:
            os.makedirs(os.path.dirname(target), exist_ok=True)
            with suppress(FileNotFoundError):
                os.remove(target)
            os.link(os.path.realpath(source), target)
        except OSError as error:
            why = "they are on different disks" if error.errno == errno.EXDEV else error.strerror
            raise PairmillError(
                f"'{source}' cannot be hard-linked into '{self.place.uri}': {why}. Give --to a folder on the disk of "
                "the pictures, or write --pictures copy."
            ) from error

    def _is_ours(self, name: str, sha256: str) -> bool:
        """Return whether a file of this name and content was written by an earlier state of the export."""
        return any(map(sha256.startswith, self._earlier.get(name, ())))

    def _put(self, name: str, wanted: str, write: Callable[[str], None], about: dict[str, Any]) -> None:
        """Let ``write`` make the file of sha256 ``wanted``, unless it is a user's; note in ``about`` whose it is."""
        there = self.place.sha256_of(name)
        if not there or self._is_ours(name, there):
            if there != wanted:
                write(name)
            about["written"][name] = wanted
        elif there != wanted:
            about["kept"].append(name)

    def finish(self, files: list[Written]) -> None:
        """Write `metadata.jsonl` and the checksums, and remove the export's files that it no longer has."""
        before, n_bytes = self.record.read_json(SIZES).get(METADATA, []), 0
        names, counts = set[str](), Counter[str]()
        there = self.place.sha256_of(METADATA)
        with self.record.file(CHECKSUMS) as sums, self.record.file(f"{METADATA}.new") as made:
            for row in self._rows_of([listed.name for listed in files]):
                written, kept, note = row.pop("written"), row.pop("kept", ()), row.pop("note", "")
                if row:
                    made.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
                sums.write("".join(f"{sha}  {name}\n" for name, sha in written.items()).encode())
                names.update((*written, *kept) if self._earlier else ())
                counts.update(files=len(written), kept=len(kept), texts=bool(row.get("text")))
                counts[note or "pictures"] += 1
        new = made.written(METADATA, 0).sha256
        if there in ("", new) or there in before:
            self.record.write_json(SIZES, {METADATA: [there, new]})  # both are the export's if it is killed now
            with self.place.file(METADATA) as out:
                for line in self.record.lines(f"{METADATA}.new"):
                    out.write(line)
        else:
            counts["kept"] += 1
        self.record.remove(f"{METADATA}.new")
        for name in self._earlier.keys() - names:
            if there := self.place.sha256_of(name):
                if self._is_ours(name, there):
                    self.place.remove(name)
                else:
                    counts["kept"] += 1
        for line in self.record.lines(CHECKSUMS):
            n_bytes += self.place.size_of(line[66:].decode().rstrip("\n"))
        self.record.write_json(SIZES, {METADATA: [new], "bytes": n_bytes, **counts})
        for name in set(self.record.names()).difference(file.name for file in files):
            if name.endswith(".jsonl"):  # of an earlier state or another version
                self.record.remove(name)

    def size(self) -> tuple[int, int]:
        """Return the number of written files and their bytes, of a finished folder."""
        sizes = self.record.read_json(SIZES)
        return sizes.get("files", 0), sizes.get("bytes", 0)

    def notes(self, n_rows: int) -> Iterator[str]:
        """Yield notes on what a finished folder of ``n_rows`` pictures lacks, or has of the user's own."""
        counts = self.record.read_json(SIZES)
        for kind, note in _NOTES.items():
            if n := counts.get(kind):
                yield f"{n:,} {note}"
        if n_rows and counts.get("texts") == 0:
            yield "no picture has this text, so no .txt is written; choose another, such as --text caption or alt_text"


def _caption_file(name: str) -> str:
    """Return the name of the `.txt` beside the picture ``name``."""
    return str(PurePosixPath(name).with_suffix(".txt"))


def _local_sha256(path: str | None, content: str) -> str:
    """Return the sha256, in 64 hex digits, of the local file ``path`` if it holds the picture ``content``, else ''."""
    with suppress(OSError, ValueError):
        if path:
            with open(path, "rb") as file:
                data = file.read()
            return hashlib.sha256(data).hexdigest() if content_id(data) == content else ""
    return ""
