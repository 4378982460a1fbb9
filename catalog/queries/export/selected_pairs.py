"""Select the pairs of an export: one split, a nested size, a list of pictures, or a number of pairs.

Hashes of picture and seed order which pairs are drawn: equal selections are equal on every machine, and a larger one
has the pairs of a smaller one.

`name_files` names the pictures after their files at the source, so that no two names clash on any file system.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from pairmill.catalog.cut.released_address import released_pages
from pairmill.catalog.cut.splits import nested_sizes, ranked_splits
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries.datasets import Dataset, find
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.error import PairmillError, did_you_mean

_EXAMPLES = {"split": "splits={train: 0.98, val: 0.01, test: 0.01}", "size": "sizes=[nano, lite, full]"}


@dataclass(frozen=True)
class Selection:
    """Pairs of a version that an export takes.

    ``condition``: SQL that begins with AND and limits the pairs; '' takes all. ``split`` and ``size``: their names, ''
    for all. ``pairs``: the number of pairs that ``seed`` draws; None takes all. ``listed``: digest of the list of
    pictures to take, '' for all. ``n``: the number of pairs, known after `taken`.
    """

    dataset: Dataset
    condition: str = ""
    split: str = ""
    size: str = ""
    pairs: int | None = None
    seed: int = 0
    listed: str = ""
    n: int = 0

    def __str__(self) -> str:
        return str(self.dataset)

    @property
    def candidates(self) -> str:
        """SQL condition for the version's pairs that have the wanted split and size."""
        return f"{self.dataset.where}{self.condition}"

    @property
    def where(self) -> str:
        """SQL condition for the selected rows of ``pairs``; after `taken` if pairs are drawn."""
        drawn = "image_id IN (SELECT image_id FROM temp.export_taken)"
        return self.candidates if self.pairs is None else f"{self.dataset.where} AND {drawn}"

    def given(self) -> dict[str, Any]:
        """Return the options that differ from an export of a whole version."""
        found = {"split": self.split, "size": self.size, "list": self.listed}
        found |= {} if self.pairs is None else {"pairs": self.pairs, "seed": self.seed}
        return {name: value for name, value in found.items() if value != ""}


def select(
    lake: Lake, name: str, split: str = "", size: str = "", pairs: int | None = None, seed: int = 0,
    pictures: Sequence[str] | None = None,
) -> Selection:  # fmt: skip
    """Return the selection of the version ``NAME[@VERSION|@TAG]``; ``pictures``: take these sha256s alone.

    Raises PairmillError if the version does not exist, lacks the split or size, or has none of the pictures.
    """
    dataset = find(lake, name)
    if pairs is not None and pairs < 1:
        raise PairmillError(f"--pairs {pairs}: give 1 or more.")
    condition, listed = _condition(lake, dataset, split, size) if split or size else "", ""
    if pictures is not None:
        lake.execute("CREATE OR REPLACE TEMP TABLE export_listed AS SELECT unnest(?::VARCHAR[]) AS sha256", (pictures,))
        condition += " AND sha256 IN (SELECT sha256 FROM temp.export_listed)"
        if not lake.query(f"SELECT 1 FROM pairs WHERE {dataset.where}{condition} LIMIT 1"):
            raise PairmillError(f"no picture of the list is in a pair of {dataset}. Nothing was written.")
        listed = hashlib.sha256(" ".join(sorted(pictures)).encode()).hexdigest()[:16]
    return Selection(dataset, condition, split, size, pairs, seed, listed)


def _condition(lake: Lake, dataset: Dataset, split: str, size: str) -> str:
    """Return the SQL condition for a version's split and nested size. Raises PairmillError if it has none of the name.

    A size holds the smaller ones, and all pairs of the held-out splits.
    """
    recipe = plan_of(lake, dataset).recipe
    for option, name, names in (("split", split, recipe.splits or {}), ("size", size, recipe.sizes or {})):
        if name and name not in names:
            make = f"it has no {option}s; make some: pairmill recut {dataset} --set '{_EXAMPLES[option]}'"
            remedy = (did_you_mean(name, names) or f"there are {', '.join(names)}.") if names else make
            raise PairmillError(f"--{option} {name}: {dataset} has none of this name; {remedy}")
    found = f" AND split = {quoted(split)}" if split else ""
    if size:
        largest = f" AND split = {quoted(ranked_splits(recipe)[0])}" if recipe.splits else ""
        n = lake.query(f"SELECT count(*) FROM pairs WHERE {dataset.where}{largest}")[0][0]
        names = [name for name, _ in nested_sizes(recipe, n)]
        found += f" AND size IN ({', '.join(map(quoted, names[: names.index(size) + 1]))})"
    return found


def taken(lake: Lake, of: Selection) -> Selection:
    """Draw the pairs of a selection into the table ``export_taken``; return it with ``n``, their number.

    DuckDB sorts the pictures and spills to disk, some 100 bytes a picture. A selection that is not drawn is counted.
    Raises PairmillError if the version has too few pairs.
    """
    n = lake.query(f"SELECT count(*) FROM pairs WHERE {of.candidates}")[0][0]
    if of.pairs is None:
        return replace(of, n=n)
    if of.pairs > n:
        raise PairmillError(f"{of.pairs:,} pairs: {of} has {n:,}. Give another --pairs, or another version.")
    lake.execute(
        f"CREATE OR REPLACE TEMP TABLE export_taken AS SELECT image_id FROM pairs WHERE {of.candidates} "
        f"ORDER BY right(sha256(sha256 || '/mixture/{of.seed}'), 32), sha256 LIMIT {of.pairs}"  # as earlier exports
    )
    return replace(of, n=of.pairs)


_SUFFIX = r"\.(jpe?g|jpe|jfif|a?png|gif|webp|bmp|dib|tiff?|avif)$"
# A folder of such a name may clash with a file of it: `a.jpg/b.png` beside `a.jpg`.
_FILE_LIKE = r"\.(jpe?g|jpe|jfif|a?png|gif|webp|bmp|dib|tiff?|avif|txt|jsonl|part)$"
# Characters that Windows forbids, control codes, and those that end a path in an address.
_FORBIDDEN = r'[\x00-\x1f\x7f<>:"\\|?*]'
_RESERVED = r"^(con|prn|aux|nul|com[0-9]|lpt[0-9])( *(\.|$))"  # names of devices on Windows, with any suffix
# Bytes of a part, and characters of a longer one, of 4 bytes at most: 12 digits, suffix and `.part` are added, and file
# systems allow 255. Bytes of a path: S3 allows 1,024 with the prefix; a longer one is the picture's id.
_PART, _CHARACTERS, _PATH = 200, 50, 700


def name_files(lake: Lake) -> None:
    """Add the columns ``file_name`` and ``local`` to the table ``export_rows``.

    ``file_name`` is the picture's path below its source, or its address without the scheme: sub-folders divided by '/',
    without hidden parts, '..' and characters that Windows forbids. It ends in a picture's suffix. Of pictures whose
    paths are equal without suffix and case, since each has a `.txt`, the first by id keeps its name; the others get 12
    digits of their ids.

    ``local`` is the absolute path at which a local source has the file, NULL if it has none.
    """
    pages = released_pages("SELECT document_id FROM export_rows")
    # A file's document has the file's address; its metadata may give the picture another address, on the web.
    own = f"regexp_matches(coalesce(page, ''), '{_SUFFIX}', 'i')"
    address = f"CASE WHEN {own} THEN page ELSE coalesce(raw_image_url, page, '') END"
    web = "regexp_replace(regexp_replace(address, '^[A-Za-z0-9]+://', ''), '[?#].*$', '')"
    path = f"CASE WHEN contains(address, '://') THEN {web} WHEN contains(address, '&path=') THEN " \
        "regexp_replace(address, '^.*&path=', '') ELSE replace(address, '#', '/') END"  # fmt: skip
    part = f"regexp_replace(regexp_replace(x, '{_FORBIDDEN}', '_', 'g'), '^[. ]+|[. ]+$', '', 'g')"
    parts = f"list_filter(list_transform(string_split({path}, '/'), x -> {part}), x -> x <> '')"
    folders = f"list_transform(parts[:-2], x -> regexp_replace({_fitting('x')}, '{_FILE_LIKE}', '_\\1', 'i') || '/')"
    last = "coalesce(parts[-1], image_id)"
    file = _fitting(f"regexp_replace({last}, '{_SUFFIX}', '', 'i')")
    usual = "CASE format WHEN 'jpeg' THEN '.jpg' WHEN 'tiff' THEN '.tif' ELSE '.' || format END"
    lake.execute(
        f"""CREATE OR REPLACE TEMP TABLE export_rows AS WITH addressed AS (SELECT e.*, folder, {address} AS address
            FROM export_rows e LEFT JOIN ({pages}) p USING (document_id)),
        split AS (SELECT *, {parts} AS parts FROM addressed),
        stems AS (SELECT *, list_aggregate(list_concat([''], {folders}), 'string_agg', '')
            || {file} AS long_stem, CASE WHEN strlen(long_stem) > {_PATH} THEN image_id ELSE long_stem END AS stem,
            coalesce(nullif(regexp_extract({last}, '{_SUFFIX}', 0, 'i'), ''), {usual}) AS suffix FROM split),
        counted AS (SELECT *, row_number() OVER (PARTITION BY lower(nfc_normalize(stem)) ORDER BY image_id) AS nth
            FROM stems)
        SELECT * EXCLUDE (folder, address, parts, long_stem, stem, suffix, nth),
            stem || CASE WHEN nth > 1 THEN '-' || left(image_id, 12) ELSE '' END || suffix AS file_name,
            CASE WHEN folder <> '' AND NOT contains(address, '://') THEN folder || address END AS local
        FROM counted ORDER BY n"""
    )


def _fitting(x: str) -> str:
    """Return SQL for the part ``x`` of a path, short enough and under a name that Windows allows."""
    cut = f"CASE WHEN strlen({x}) <= {_PART} THEN {x} ELSE rtrim(left({x}, {_CHARACTERS}), '. ') END"
    return f"regexp_replace({cut}, '{_RESERVED}', '_\\1\\2', 'i')"
