"""Name the pictures of an export after their files at the source, so that no two names clash on any file system."""

from pairmill.catalog.cut.released_address import released_pages
from pairmill.catalog.lake.lake import Lake

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
