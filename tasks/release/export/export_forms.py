"""Declare the formats of an export: file ending, columns and order of rows of each; and write one file."""

import hashlib
import io
import json
import re
import tarfile
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import pyarrow as pa

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.schema import columns
from pairmill.catalog.queries.export import exports
from pairmill.catalog.queries.export.exports import SHARDS_OF_ITEMS, RowOrder, gather_documents, pair_columns
from pairmill.catalog.queries.export.selected_pairs import Selection, name_files
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.tasks.release.export import parquet_tables
from pairmill.tasks.release.export.destination import ExportFile
from pairmill.tasks.release.export.picture_folder import PictureFolder, Placing
from pairmill.tasks.release.export.pictures import EXPORTED, Metadata, Pictured, Row

Format = Literal["webdataset", "parquet", "texts", "realsyn", "llava", "obelics", "folder", "card"]
Captions = Literal["chosen", "all"]
SUFFIX = {"webdataset": "tar", "parquet": "parquet", "texts": "parquet", "realsyn": "parquet", "llava": "json",
          "obelics": "parquet", "folder": "jsonl", "card": "md"}  # fmt: skip
WITH_PICTURES = ("webdataset", "parquet", "obelics", "folder")
OF_DOCUMENTS = ("obelics",)  # forms whose rows are documents, not pairs
GROWING = ("webdataset", "parquet", "texts")  # forms that a later version may add files to
ONE_TEXT = ("webdataset", "llava", "folder")  # forms in which a sample has one text, which --text chooses
# One ending for every picture format: `datasets` takes the fields of all samples from the first five, and loaders set
# to `jpg` skip samples without it. Decoders go by the first bytes, not by the ending.
PICTURE = "jpg"
LLAVA_COLUMNS = ("id", "image", "conversations")
FOLDER_COLUMNS = ("file_name", "text", "caption_source", "image_id", *EXPORTED)
QUESTION = "<image>\nDescribe the image."
_SEVERAL = re.compile(r"(random|each)\((.*)\)", re.DOTALL)
_ITEM = re.compile(r"(\w+)(?:\.\.(\w+))?(?:\s*\*\s*(\d+(?:\.\d+)?))?")
_REMEDY = "Columns are {columns}; write one, or such as: random(text1..text3, syn_text * 2), or each(text1, caption)."


@dataclass(frozen=True)
class TextChoice:
    """The choice of a sample's text: columns of a pair with their weights. ``spec`` is the user's text of it.

    A pair's text is drawn among the columns in which it has one, with chances in proportion to the weights. The draw is
    a hash of the image's id, so an export is the same whatever machine writes it, and however often it is resumed.

    With ``each`` a pair gives several rows, one for each column in which it has a text; `text_column` names the column.
    """

    spec: str
    weights: tuple[tuple[str, float], ...]
    each: bool = False

    @property
    def each_of(self) -> tuple[str, ...]:
        """The columns for each of which a pair becomes a row of its own; () without ``each``."""
        return tuple(name for name, _ in self.weights) if self.each else ()

    def column_of(self, row: Mapping[str, Any]) -> str:
        """Return the column of a row's chosen text, '' if it has none in these columns."""
        if self.each:
            return row["text_column"]
        held = [(name, weight) for name, weight in self.weights if row.get(name)]
        if len(held) < 2:
            return held[0][0] if held else ""
        digest = hashlib.sha256(f"{self.spec}\x1f{row['image_id']}".encode()).digest()
        left = int.from_bytes(digest[:8], "big") / 2**64 * sum(weight for _, weight in held)
        for name, weight in held:
            left -= weight
            if left < 0:
                return name
        return held[-1][0]

    def text_of(self, row: Mapping[str, Any]) -> str:
        """Return the chosen text of a row, '' if it has none in these columns."""
        name = self.column_of(row)
        return _words(row[name]) if name else ""

    def texts_of(self, row: Mapping[str, Any]) -> dict[str, str]:
        """Return all texts of a row by column, where a sample has several: one, or with ``each`` one of each column."""
        names = self.each_of or (self.column_of(row),)
        return {name: _words(row[name]) for name in names if name and row[name]}


def _words(value: str | list[str]) -> str:
    """Return a text, or the list of tags with commas between them."""
    return value if isinstance(value, str) else ", ".join(value)


def gather(
    lake: Lake, selected: Selection, format: str, text: TextChoice, shuffle: int | None, grows: bool, with_captions: str
) -> None:
    """Select the rows of an export (pairs or documents, by ``format``) into the temporary table ``export_rows``.

    ``with_captions``: SQL of all captions, for `exports.gather`; '' for none.
    """
    if format in OF_DOCUMENTS:
        gather_documents(lake, selected)
        return
    is_tar = format == "webdataset"
    each_of = () if format == "folder" else text.each_of
    order = RowOrder(format in WITH_PICTURES, is_tar, shuffle, grows, each_of)
    exports.gather(lake, selected, order, with_captions)
    if format == "folder":
        name_files(lake)


def picture_paths(lake: Lake, format: str) -> dict[str, tuple[str, ...]]:
    """Return by shard the files with the image bytes of ``export_rows``; {} for a format without pictures."""
    if format not in WITH_PICTURES:
        return {}
    return exports.picture_paths(lake, SHARDS_OF_ITEMS) if format in OF_DOCUMENTS else exports.picture_paths(lake)


def required(format: str, text: TextChoice, selected: Selection) -> str:
    """Return the SQL condition for pairs of which a format makes a row, so that shares are of what comes out."""
    if format == "realsyn":
        return "regexp_matches(raw_image_url, '^https?://')"
    if format == "llava" and selected.is_drawn:  # its files leave out rows without a text
        return " OR ".join(f"length({name}) > 0" for name, weight in text.weights if weight)
    return ""


def check_choices(
    format: str, text: str, captions: str, shuffle: int | None, grows: bool, of_folder: Mapping[str, Any], metadata: str
) -> None:
    """Raise PairmillError if the format or an option's value is unknown, or the format does not support an option."""
    pictures = of_folder.get("pictures", "copy")
    given = (("format", format, Format), ("captions", captions, Captions), ("metadata", metadata, Metadata))
    for name, value, known in (*given, ("pictures", pictures, Placing)):
        if value not in get_args(known):
            raise PairmillError(f"--{name} {value}: there are {', '.join(get_args(known))}.")
    if metadata == "original" and format not in WITH_PICTURES:
        raise PairmillError(f"--metadata original is for pictures, and {format} has none. Leave it out.")
    if text != "text1" and format not in ONE_TEXT:
        held = "the document's own texts" if format in OF_DOCUMENTS else "a column for each"
        raise PairmillError(f"--text chooses a sample's one text, and {format} has {held}. Leave it out.")
    if format in ("folder", "card") and (captions != "chosen" or shuffle is not None):
        option = "--shuffle has no order to change in" if shuffle is not None else "--captions all adds no column to"
        several = "; several captions: --text 'each(…)'" if format == "folder" else ""
        raise PairmillError(f"{option} --format {format}. Leave it out{several}.")
    if of_folder and format != "folder":
        raise PairmillError(f"--{next(iter(of_folder))} is for --format folder. Leave it out, or write that format.")
    if grows and (format not in GROWING or shuffle is not None):
        raise PairmillError(f"--grow adds files behind the others, for {', '.join(GROWING)} without --shuffle.")
    if format in OF_DOCUMENTS and (captions != "chosen" or shuffle is not None):
        option = "--shuffle mixes" if shuffle is not None else "--captions all adds a column to"
        raise PairmillError(f"{option} pairs, and {format} has whole documents. Leave it out.")


def check_selection(format: str, grows: bool, selected: Selection) -> None:
    """Raise PairmillError if an export of whole documents, or one that grows, does not support the selection."""
    if (selected.is_drawn or selected.listed) and (grows or format in OF_DOCUMENTS):
        option = "a mixture" if selected.is_mixture else "--list" if selected.listed else "--pairs"
        other = "--grow writes all pairs of each version" if grows else f"{format} has whole documents"
        raise PairmillError(f"{option} chooses pairs, and {other}. Leave one of the two out.")
    if "split" in selected.optional_columns and not selected.split and (grows or format in OF_DOCUMENTS):
        choice = "--grow" if grows else f"--format {format}"
        raise PairmillError(f"{selected} has splits, and {choice} has no files by split. Choose one by --split.")


def write(
    table: pa.Table, format: str, pictured: Pictured, out: ExportFile, text: TextChoice, folder: PictureFolder | None
) -> int:
    """Write rows of ``export_rows`` as one file; return the number written (`llava` leaves out rows without a text).

    The file of a ``folder`` lists the pictures and captions that are written into it.
    """
    if folder:
        return folder.write(table.to_pylist(), text.texts_of, pictured, out)
    if format == "webdataset":
        _write_tar(table.to_pylist(), pictured, out, text)
    elif format == "llava":
        return _write_conversations(table.to_pylist(), text, out)
    elif format == "obelics":
        parquet_tables.write_documents(table, pictured, out)
    elif format == "parquet":
        parquet_tables.write_with_pictures(table, _table_columns(table.column_names), pictured, out)
    else:
        chosen = _realsyn_columns if format == "realsyn" else _table_columns
        parquet_tables.write_texts(table, chosen(table.column_names), out)
    return table.num_rows


def _write_tar(rows: list[Row], pictured: Pictured, out: ExportFile, text: TextChoice) -> None:
    """Write rows as a WebDataset tar of the same bytes each time; memory and errors are those of ``pictured``."""
    stream: Any = out  # mode `w|` never reads or seeks
    with tarfile.open(fileobj=stream, mode="w|", format=tarfile.USTAR_FORMAT) as tar:
        for row, picture in pictured(rows):
            _add_sample(tar, row, picture, text)


def _add_sample(tar: tarfile.TarFile, row: Row, picture: bytes, text: TextChoice) -> None:
    """Append one sample: three adjacent files with one base name, the row's ``sample`` if it has one, else image id."""
    held = {name: row[name] for name in (*columns("pairs"), "captions", "text_column", *EXPORTED) if name in row}
    content = json.dumps(held, ensure_ascii=False, separators=(",", ":"))
    members = {PICTURE: picture, "json": content.encode(), "txt": text.text_of(row).encode()}
    for extension, data in members.items():
        member = tarfile.TarInfo(f"{row.get('sample', row['image_id'])}.{extension}")
        member.size = len(data)  # the defaults are reproducible: owner, group and time 0, mode 0644
        tar.addfile(member, io.BytesIO(data))


def _write_conversations(rows: list[Row], text: TextChoice, out: ExportFile) -> int:
    """Write the JSON on which LLaVA trains, a conversation for each row that has a text; return the number of these.

    ``image`` is `{image_id}.jpg`, the picture's name in the tars of a webdataset export: unpacked, their folder is
    LLaVA's ``--image_folder``. A person asks QUESTION, which begins with LLaVA's mark of the picture; the text answers.
    """
    n = 0
    for row in rows:
        if answer := text.text_of(row):
            said = [{"from": "human", "value": QUESTION}, {"from": "gpt", "value": answer}]
            values = (row.get("sample", row["image_id"]), f"{row['image_id']}.{PICTURE}", said)
            content = json.dumps(dict(zip(LLAVA_COLUMNS, values, strict=True)), ensure_ascii=False)
            out.write(f"{'[' if n == 0 else ','}\n{content}".encode())
            n += 1
    out.write(b"\n]\n" if n else b"[]\n")
    return n


def shown_columns(format: str, with_captions: bool, selected: Selection) -> list[str]:
    """Return the columns of an export in a format, for its dataset card."""
    if format == "llava":
        return [*LLAVA_COLUMNS]
    if format == "folder":
        return [*FOLDER_COLUMNS, *(["split"] if "split" in selected.optional_columns else [])]
    if format == "obelics":
        return [*parquet_tables.OBELICS_COLUMNS]
    if format == "realsyn":
        return _realsyn_columns(pair_columns(selected))
    added = [*(["origin"] if selected.is_mixture else []), *(["captions"] if with_captions else [])]
    return [*_table_columns(pair_columns(selected)), *added, *(EXPORTED if format in WITH_PICTURES else ())]


def _realsyn_columns(names: Collection[str]) -> list[str]:
    """Return RealSyn's columns among ``names``, in its order; text4 and text5 count if ``names`` has them."""
    return [name for name in ("raw_image_url", *text_columns.texts(), "syn_text") if name in names]


def _table_columns(names: Collection[str]) -> list[str]:
    """Return the columns of a Parquet table, RealSyn's first."""
    first = _realsyn_columns(names)
    left_out = (*first, "dataset", "version", "shard", "format")
    return [*first, *(name for name in names if name not in left_out)]


def text_choice(spec: str, n_texts: int = text_columns.RELEASED, more: tuple[str, ...] = ()) -> TextChoice:
    """Parse ``text1``, ``random(text1..text3, syn_text * 2)`` or ``each(text1..text3)`` for a version.

    A column of `random` has the weight 1 unless given. A range gives its weight to each: ``text1..text3 * 2`` is 2 for
    each of the three. ``each`` has no weights. ``n_texts`` is the version's number of columns of real texts; ``more``
    are further columns that may be chosen. Raises PairmillError if the words are neither, a column is unknown or stands
    twice, or no weight is above 0.
    """
    columns = (*text_columns.of_every_kind(n_texts), *more)

    def refused(why: str) -> PairmillError:
        return PairmillError(f"--text {spec}: {why}. {_REMEDY.format(columns=', '.join(columns))}")

    def place(name: str) -> int:
        if name in columns:
            return columns.index(name)
        more = f" (a version has it by `association.top_k: {name[-1]}`)" if name in text_columns.texts() else ""
        raise refused(f"there is no text '{name}'{more}")

    several = _SEVERAL.fullmatch(spec.strip())
    if not several:
        return TextChoice(spec.strip(), ((columns[place(spec.strip())], 1.0),))
    weights: dict[str, float] = {}
    for part in several[2].split(","):
        item = _ITEM.fullmatch(part.strip())
        if not item:
            raise refused(f"'{part.strip()}' is no column with a weight")
        first, last, weight = item.groups()
        if weight and several[1] == "each":
            raise refused(f"each text is taken once, so '{part.strip()}' has no weight")
        names = columns[place(first) : place(last or first) + 1]
        if not names or set(names) & set(weights):
            raise refused(f"'{part.strip()}' names a column twice or none")
        weights |= dict.fromkeys(names, float(weight or 1))
    if not any(weights.values()):
        raise refused("no weight is above 0")
    return TextChoice(spec.strip(), tuple(weights.items()), several[1] == "each")
