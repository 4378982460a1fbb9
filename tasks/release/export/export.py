"""Export a published dataset: WebDataset tars for training, Parquet tables in RealSyn's columns, a folder of pictures.

Files are numbered and written one after another, each complete or absent. `.progress.json` lists the finished ones, so
a killed export resumes; `.manifest.json` comes last, so an export without it is unfinished. Equal versions give equal
bytes, manifest included. A mark file, written first, identifies the export: an export never overwrites another export
or other files. The names of these three begin with a dot, so that loaders skip them.
"""

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.edit_preview import describe_edits
from pairmill.catalog.queries.export import exports
from pairmill.catalog.queries.export.data_card import card_tables
from pairmill.catalog.queries.export.selected_pairs import Selection, taken
from pairmill.catalog.queries.figures.canary_rates import wrong_pairs_line
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.queries.gallery.gallery_query import Concept
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.mark import MARK
from pairmill.catalog.terms.text_columns import RIGHTS
from pairmill.catalog.write import lease
from pairmill.catalog.write.recorded_removals import unfinished_notice
from pairmill.catalog.write.runs import record_export
from pairmill.tasks.release.export import export_forms
from pairmill.tasks.release.export.destination import CARD, CHECKSUMS, CREDITS, MANIFEST, PROGRESS, Destination, Written
from pairmill.tasks.release.export.export_description import CROISSANT, croissant, dataset_card
from pairmill.tasks.release.export.export_forms import SUFFIX, WITH_PICTURES, Captions, Format, TextChoice, text_choice
from pairmill.tasks.release.export.parquet_tables import IMAGE
from pairmill.tasks.release.export.picture_folder import METADATA, RECORD, FolderOptions, PictureFolder
from pairmill.tasks.release.export.pictures import Metadata, Pictured, exported, with_pictures
from pairmill.tasks.release.export.shuffled_pictures import ShuffledPictures
from pairmill.tasks.run.items.rows import cut_portions

TAR_ROWS, TAR_BYTES = 10_000, 1_000_000_000
UNRECORDED = "the lake is open for reading only, so this export is not recorded in it: no later takedown will name it"
LINKED = "linked pictures are the source's own files, private metadata included; --pictures copy strips it"
WITHOUT_ADDRESS = (
    "{0:,} of {1:,} pairs are left out: their pictures have no address on the web, and a row of --format realsyn is an "
    "address. --format parquet has them all"
)
LISTED = "listed"  # the digest of a file whose rows cannot change
TABLE_ROWS = 100_000  # some 100 MB of texts a file, all of it in memory
CONTACT = re.compile(r"(?=.*(?:@|://))[^\s<>|`]{5,200}")
LAYOUT = 3  # of files and members; an export of another layout is written anew, because loaders want one layout


@dataclass(frozen=True)
class Exported:
    """A finished export at ``uri``: its numbers of data files, rows (pairs or documents) and bytes.

    ``notes``: warnings for the user, a line each, such as that the lake could not record the export.
    """

    uri: str
    files: int
    rows: int
    bytes: int
    notes: tuple[str, ...] = ()


def export(
    lake: Lake,
    name: str,
    version: int | None,
    to: str,
    format: Format = "webdataset",
    wait_seconds: float = 60.0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    captions: Captions = "chosen",
    text: str = "text1",
    shuffle: int | None = None,
    gaps: Sequence[Concept] = (),
    grow: bool = False,
    options: FolderOptions | None = None,
    metadata: Metadata = "stripped",
    selected: Selection | None = None,
    contact: str = "",
) -> Exported:
    """Write version ``version`` (None: the newest) of dataset ``name`` to the folder or s3:// prefix ``to``.

    ``to`` must be empty or have this lake's export of that version in that format, finished or not; a folder of
    pictures may have another version of the dataset. Finished files are not written again.

    webdataset: `NAME-vV-000000.tar` of at most 10,000 samples and 1 GB, each `{image_id}.jpg` (its own format,
    whatever it is), `.json` (all columns of the pair) and `.txt` (text1). parquet: `NAME-vV-000000.parquet` of
    at most 1 GB: the column `image` of {bytes, path}, RealSyn's columns, then ids, texts, statuses and similarities.
    Both are in the order of the shards that have the bytes, so neighbours come from near documents: shuffle while
    training. texts: the same tables without `image`, by image_id. obelics: the documents of the kept pictures as
    OBELICS' parallel lists, by `write_documents`.

    ``captions`` 'all' adds a column `captions`, also to the `.json`: for each captioner that captioned the image, in
    the recipe's order, its name, text (NULL unless its status is ok), status, and similarity where the lake has one.

    ``text`` is the text of a sample's `.txt`, as `text_choice` reads it: a column, one of several by chance, drawn by
    each image's id, or each of several, which repeats the sample as `{image_id}-{column}`.

    ``shuffle`` is the seed of a shuffle of all rows over all files, by `ShuffledPictures`: the same on every machine.
    The up to 5 samples from which `datasets` learns a tar's types stay first.

    A version with splits has files by split, `NAME-vV-train-000000.tar`, numbered through.

    ``gaps`` are concepts that `concepts` counted, for the Croissant description.

    ``grow``: the folder is for all versions that the version's recipe makes, and gets the files `NAME-000000.tar`. Rows
    that are new since an earlier version go into further files. A file of which a row has changed is written anew; once
    a row is gone, so are all files behind it, so that a removal reaches them.

    folder: pictures under their own names with a `.txt` beside each, by ``options``; the export's
    own files are in its hidden folder RECORD. With ``pictures`` 'stay' the folder is the source's.

    ``metadata``: 'stripped' removes private metadata from pictures by `exported`, without touching pixels; with
    'original' the bytes are the source's, as are always those of files that a folder links to.

    ``selected``: write these pairs instead of all of the version, such as one split or a mixture of versions, of which
    this version is the first; its `given` are part of the export's identity.

    card: the dataset card and its Croissant JSON-LD alone, written anew each time. ``contact``, a mail or web address,
    is named in cards as the place to ask for a removal, and is part of the export's identity.

    Runs in one process; memory is one file's rows and their images from one shard, 1 GB at most. Holds the lease while
    it writes (waits ``wait_seconds`` for it): the export is recorded in ``exports``, and no takedown may happen in
    between. An export from a lake that is open for reading is not recorded, and takes no lease.

    Raises PairmillError when the dataset does not exist, the destination cannot be written or has other content, an
    image's bytes are gone, or the version was amended meanwhile; LeaseHeld when another process keeps the lease.
    """
    options = options or FolderOptions()
    dataset = datasets.find(lake, name if version is None else f"{name}@{version}")
    selected = selected or Selection((dataset,))
    export_forms.check_choices(format, text, captions, shuffle, grow, options.given(), metadata)
    export_forms.check_selection(format, grow, selected)
    if contact and not CONTACT.fullmatch(contact):
        raise PairmillError("--contact: give one mail or web address without spaces, of at most 200 characters.")
    given = {"captions": (captions, "chosen"), "text": (text, "text1"), "shuffle": (shuffle, None)}
    given |= {"metadata": (metadata, "stripped"), "contact": (contact, "")}
    more = {name: value for name, (value, default) in given.items() if value != default}
    more |= options.given() | selected.given()
    chosen = text_choice(text, selected.n_texts, ("tags",) if format == "folder" else ())
    if needs := export_forms.required(format, chosen, selected):
        selected = replace(selected, conditions=tuple(f"{each} AND ({needs})" for each in selected.conditions))
    with_captions = exports.captions_by_version(lake, selected) if captions == "all" else ""
    place, whose = Destination(to), mark_of(lake, plan_of(lake, dataset).recipe if grow else dataset, format, more)
    shown = place
    if format == "folder":
        place = Destination(f"{place.uri}/{RECORD}")
    more |= {"recipe": whose["recipe"]} if grow else {}
    selected = taken(lake, selected)
    head = head_of(dataset, format, more)
    if selected.given():
        digests = "+".join(each.content_digest for each in selected.versions)
        head |= {"content_digest": digests, "rows": sum(selected.counts)}
    check_place(place, lake, whose, head, grow or any(each.amended for each in selected.versions))
    if format == "card":
        place.prepare()
        place.remove(CARD)
        place.write_json(MARK, whose)
        _describe(lake, selected, place, head, gaps)
        exports.check_unamended(lake, selected)
        return Exported(shown.uri, 2, sum(selected.counts), place.size_of(CARD) + place.size_of(CROISSANT))
    folder = open_folder(shown, place, options) if format == "folder" else None
    notes = [unfinished_notice(lake), UNRECORDED if lake.read_only else ""]
    notes.append(LINKED if options.pictures == "link" else "")
    with nullcontext() if lake.read_only else lease.writing(lake, uuid.uuid4().hex, f"export {dataset}", wait_seconds):
        files = listed_files(place, MANIFEST, head)
        if not files or (folder and not all(map(folder.holds, files))):
            files = _write_all(lake, selected, place, head, progress, whose, with_captions, chosen, folder)
        rows, n_files, n_bytes = sum(file.rows for file in files), len(files), sum(file.bytes for file in files)
        if folder:
            n_files, n_bytes = folder.size()
            notes += folder.notes(rows)
        elif format == "realsyn" and not selected.given() and rows < dataset.n_pairs:
            notes.append(WITHOUT_ADDRESS.format(dataset.n_pairs - rows, dataset.n_pairs))
        else:
            place.write(CHECKSUMS, "".join(f"{file.sha256}  {file.name}\n" for file in files).encode())
        _describe(lake, selected, place, head, gaps)
        found = Exported(shown.uri, n_files, rows, n_bytes, tuple(filter(None, notes)))
        unamended = partial(exports.check_unamended, lake, selected)
        if lake.read_only:
            unamended()
        else:
            rows = selected.counts if selected.is_mixture else [found.rows]
            of = {(each.name, each.version): n for each, n in zip(selected.versions, rows, strict=True)}
            record_export(lake, unamended, of, format, found.uri, found.files, found.bytes)
    place.write_list(MANIFEST, head, files)
    if not grow:
        place.remove(PROGRESS)
    return found


def _describe(
    lake: Lake, selected: Selection, place: Destination, head: dict[str, Any], gaps: Sequence[Concept]
) -> None:
    """Write the export's dataset card, its Croissant JSON-LD, and the CREDITS of a version that has them."""
    dataset, format = selected.versions[0], head["format"]
    title = dataset.name if "recipe" in head else str(selected)
    about = f"Image-text pairs, curated by Pairmill: {'the dataset' if 'recipe' in head else 'version'} {title}."
    of = [f"{n:,} pairs of {version}" for version, n in zip(selected.versions, selected.counts, strict=True)]
    told = " ".join(f"{name} {value}" for name, value in selected.given().items())
    about += f" Selected by {told}: {', '.join(of)}." if told and "recipe" not in head else ""
    if any(describe_edits(lake, each) for each in selected.versions):
        about += f" People edited some of its texts; {CROISSANT} lists the edits."
    wrong = "" if "recipe" in head or told else wrong_pairs_line(lake, dataset)
    about += f" {wrong[0].upper()}{wrong[1:]}." if wrong else ""
    contact = f"To have a picture or text removed, write to {head['contact']}." if "contact" in head else ""
    given = {"dataReleaseMaintenancePlan": contact, "dataLimitations": wrong}
    rai = defaultdict[str, list[str]](list, {name: [line] for name, line in given.items() if line})
    shown = export_forms.shown_columns(format, "captions" in head, selected)
    stem, splits = _stem_of(dataset, head), exports.splits_of(lake, selected)
    names = METADATA if format == "folder" else f"{stem}*.{SUFFIX[format]}"
    names = "" if format == "card" else names
    files = {name: f"{stem}{name}-*.{SUFFIX[format]}" for name in splits if format != "folder"} or {"train": names}
    card = [dataset_card(title, about, format, files, shown, head.get("text", "text1"))]
    for table in [] if "recipe" in head else card_tables(lake, selected):  # of a growing export counts do not stay true
        card.append(f"{table.markdown()}\n")
        if table.rai:
            rai[table.rai] += table.lines()
    place.write_card("\n".join([*card, *([f"## Contact\n\n{contact}\n"] if contact else [])]))
    if RIGHTS[0] in selected.optional_columns and format != "card":
        with place.file(CREDITS) as out:
            for lines in exports.credits(lake, selected):
                out.write(lines)
    fields = [] if format in ("webdataset", "card") else [*([IMAGE] if format == "parquet" else []), *shown]
    place.write_json(CROISSANT, croissant(lake, selected, about, names, fields, gaps, splits, rai))


def _stem_of(dataset: Dataset, head: dict[str, Any]) -> str:
    """Return the prefix of the names of the export's data files."""
    if "mixture" in head:
        return "mixture-"
    return f"{dataset.name}-" if "recipe" in head else f"{dataset.name}-v{dataset.version}-"


def _write_all(
    lake: Lake,
    selected: Selection,
    place: Destination,
    head: dict[str, Any],
    progress: Callable[[int, int], None],
    whose: dict[str, Any],
    with_captions: str,
    text: TextChoice,
    folder: PictureFolder | None,
) -> list[Written]:
    """Write the files that `.progress.json` does not list yet, or whose rows have changed; return all files."""
    format, shuffle, grows = head["format"], head.get("shuffle"), "recipe" in head
    dataset = selected.versions[0]
    export_forms.gather(lake, selected, format, text, shuffle, grows, with_captions)
    try:
        sizes = exports.sizes(lake)
        if folder and len(sizes):
            starts = range(0, len(sizes), TAR_ROWS)
            folder.check(row for start in starts for row in exports.portion(lake, start, start + TAR_ROWS).to_pylist())
        place.prepare()
        if folder:
            folder.begin()
            if place.read_json(MARK) != whose:
                place.remove(CARD)  # of another version
        place.write_json(MARK, whose)
        if grows:
            files, digests = grown_files(lake, place, len(sizes))
        else:
            files = listed_files(place, PROGRESS, head)
            files = folder.resumed(files) if folder else files
            digests = [LISTED] * len(files)
        place.remove(MANIFEST)
        place.write_list(PROGRESS, head | {"digests": digests}, files)
        cuts = list(spans(sizes, format))
        if grows:
            ends = np.cumsum([0, *(file.rows for file in files)]).tolist()
            new = spans(sizes[ends[-1] :], format)
            cuts = [*pairwise(ends), *((ends[-1] + first, ends[-1] + last) for first, last in new)]
        splits = exports.splits_of(lake, selected)
        parts = [f"{selected.split}-" if selected.split else ""] * len(cuts)
        if splits and not selected.split:
            ends = np.cumsum([0, *exports.rows_of(lake, splits)]).tolist()
            spans_of = [(name, start, list(spans(sizes[start:end], format))) for name, (start, end)
                        in zip(splits, pairwise(ends), strict=True)]  # fmt: skip
            cuts = [(start + first, start + last) for _, start, found in spans_of for first, last in found]
            parts = [f"{name}-" for name, _, found in spans_of for _ in found]
        with _picture_source(lake, cuts, sizes, head) as pictured_in:
            for number, (first, last) in enumerate(cuts):
                progress(first, len(sizes))
                if number < len(files) and digests[number]:
                    continue
                name = f"{_stem_of(dataset, head)}{parts[number]}{number:06d}.{SUFFIX[format]}"
                table = exports.portion(lake, first, last)
                with place.file(name) as out:
                    n_rows = export_forms.write(table, format, pictured_in(number), out, text, folder)
                files[number : number + 1] = [out.written(name, n_rows)]
                digests[number : number + 1] = [exports.digest(lake, first, last) if grows else LISTED]
                place.write_list(PROGRESS, head | {"digests": digests}, files)
    finally:
        exports.release(lake)
    if folder:
        folder.finish(files)
    ours = re.compile(rf"{re.escape(_stem_of(dataset, head))}(?:[a-z0-9_-]+-)?\d{{6}}\.(tar|parquet|jsonl?)")
    for name in set(place.names()).difference(file.name for file in files):
        if ours.fullmatch(name):  # of an earlier, larger state of this export
            place.remove(name)
    progress(len(sizes), len(sizes))
    return files


@contextmanager
def _picture_source(
    lake: Lake, cuts: list[tuple[int, int]], sizes: np.ndarray, head: dict[str, Any]
) -> Iterator[Callable[[int], Pictured]]:
    """Yield a function that maps a file's number to the `Pictured` function, which reads the pictures of its rows."""
    format, metadata = head["format"], head.get("metadata", "stripped")
    paths = export_forms.picture_paths(lake, format)
    if head.get("shuffle") is None or format not in WITH_PICTURES:
        yield lambda number: lambda rows: exported(with_pictures(rows, paths), metadata)
        return
    with ShuffledPictures(lake, [last for _, last in cuts], sizes, paths) as pictures:
        yield lambda number: lambda rows: exported(pictures.read(number, rows), metadata)


def spans(sizes: np.ndarray, format: Format) -> Iterator[tuple[int, int]]:
    """Divide rows into files by their sizes in bytes; yield each file's rows as (first, end), at least one row."""
    most = TAR_ROWS if format in ("webdataset", "folder") else TABLE_ROWS
    return cut_portions(sizes if format in WITH_PICTURES else np.zeros_like(sizes), most, TAR_BYTES)


def open_folder(shown: Destination, record: Destination, options: FolderOptions) -> PictureFolder:
    """Return the writer of the folder ``shown``, whose own files are in ``record``.

    Raises PairmillError if the folder has other files although no export has begun in it, or is not local although
    pictures are to be linked or to stay.
    """
    others = [name for name in shown.names() if name != RECORD]
    if options.pictures != "copy" and shown.uri.startswith("s3://"):
        raise PairmillError(f"--pictures {options.pictures} needs a folder of this machine. Write --pictures copy.")
    if others and not record.names() and options.pictures != "stay":
        raise PairmillError(
            f"'{shown.uri}' is not empty (there is '{others[0]}'), and an export is written into a folder of its own. "
            "Give another folder, or --pictures stay with the folder in which the pictures lie."
        )
    return PictureFolder(shown, record, options)


def mark_of(lake: Lake, of: Dataset | Recipe, format: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return the content of an export's mark file, which identifies it: lake, dataset, format and options.

    ``of``: the version, or the recipe for a growing export of all its versions. ``more``: options that differ from the
    defaults. A version that a takedown amends keeps its mark.
    """
    which = {"version": of.version} if isinstance(of, Dataset) else {"recipe": of.digest()}
    return {"lake": exports.lake_id(lake), "dataset": of.name, **which, "format": format, **more}


def check_growing(lake: Lake, recipe: Recipe, to: str, format: str, more: dict[str, Any]) -> None:
    """Raise PairmillError unless ``to`` is empty or has the growing export of this recipe; create a local folder."""
    place, whose = Destination(to), mark_of(lake, recipe, format, more)
    check_place(place, lake, whose, whose, amended=True)
    place.prepare()


def check_place(place: Destination, lake: Lake, whose: dict[str, Any], head: dict[str, Any], amended: bool) -> None:
    """Raise PairmillError unless the folder is empty or has this very export, finished or not.

    ``whose`` is the export's mark (`mark_of`), ``head`` its content (`head_of`). ``amended``: the content may differ,
    since a takedown has amended the version or the export grows.
    """
    if f"{place.uri}/".startswith(lake.data_path):
        raise PairmillError(f"'{place.uri}' lies in the data of the lake itself. Give another folder.")
    names = [name for name in place.names() if name != f"{MARK}.part"]
    if not names:
        return
    held = [place.read_json(name) for name in (MARK, MANIFEST, PROGRESS) if name in names]
    # A copied lake has the same id: versions that both published since then differ in their content digest.
    is_same = all(each.get("content_digest") == head.get("content_digest") for each in held[1:])
    if held and held[0] == whose and (amended or is_same):
        return
    if held and whose["format"] == "folder" and held[0] | {"version": 0} == whose | {"version": 0}:
        return  # its lists tell which files are of the other version
    if told := next((each for each in held if each.keys() >= {"dataset", "format"}), None):
        kind = " with all captions" if "captions" in told else ""
        kind += f" with the text {told['text']}" if "text" in told else ""
        kind += f" shuffled by {told['shuffle']}" if "shuffle" in told else ""
        kind += f" of the mixture {told['mixture']}" if "mixture" in told else ""
        options = (*FolderOptions.names(), "metadata", "contact", "split", "size", "pairs", "seed")
        kind += "".join(f" with --{name} {told[name]}" for name in options if name in told)
        asked = ("dataset", "version", "format", "captions", "text", "shuffle", "recipe", "mixture", *options)
        same = all(told.get(name) == whose.get(name) for name in asked)
        other = " of another lake, or of other content" if same else ""
        if told.get("recipe", "") != whose.get("recipe", ""):
            other = " by another recipe" if "recipe" in told and "recipe" in whose else " of another kind (--grow)"
        version = f"@{told['version']}" if "version" in told else ""
        it = f"holds the export of {told['dataset']}{version} as {told['format']}{kind}{other}"
    else:
        it = f"is not empty (there is '{names[0]}'), and an export is written into a folder of its own"
    remedy = "" if any(each.get("pictures") == "stay" for each in held) else ", or empty this one"
    if whose.get("pictures") == "stay":  # the folder has the user's own pictures
        remedy = f", or delete '{place.uri}': the .txt files are yours then"
    raise PairmillError(f"'{place.uri.removesuffix(f'/{RECORD}')}' {it}. Give another folder{remedy}.")


def head_of(dataset: Dataset, format: str, more: dict[str, Any]) -> dict[str, Any]:
    """Return the part of an export's manifest that identifies its content: version, format, digest, rows, options."""
    which = {"dataset": dataset.name, "version": dataset.version, "format": format}
    return {**which, "content_digest": dataset.content_digest, "rows": dataset.n_pairs, "layout": LAYOUT, **more}


def listed_files(place: Destination, name: str, head: dict[str, Any]) -> list[Written]:
    """Read the export's list of files ``name``, MANIFEST or PROGRESS, and return its files.

    Returns [] if the list is not of the content ``head`` (`head_of`), or one of its files is missing.
    """
    listing = place.read_json(name)
    if any(listing.get(key) != value for key, value in head.items()):
        return []
    files = [Written(**file) for file in listing.get("files", [])]
    return files if all(place.holds(file) for file in files) else []


def grown_files(lake: Lake, place: Destination, n_rows: int) -> tuple[list[Written], list[str]]:
    """Return the files of a growing export that still have all their rows, and the digest of each file's rows.

    The digest is '' for a file that is missing or whose rows have changed.
    """
    listing, files, digests, first = place.read_json(PROGRESS), [], [], 0
    if listing.get("layout") != LAYOUT:
        return [], []
    for row, was in zip(listing.get("files", []), listing.get("digests", []), strict=False):
        file = Written(**row)
        last = first + file.rows
        if last > n_rows:
            break
        files.append(file)
        digests.append(was if was == exports.digest(lake, first, last) and place.holds(file) else "")
        first = last
    return files, digests
