"""Write SQL for the released address of an image: an address that is the same on every machine.

``images.url`` opens an image here. It may be an absolute path, or the whole image as a ``data:`` URI. A published pair
contains instead the first of these that applies:

1. an address on the web or S3, without user and password, and without a signing query;
2. the path, below the source, of a file of the source or a part of one: ``000/0001-2.jpg``, ``shards/7.tar#03.png``;
   for a source that is one file, starting with the file's name: ``7.tar#03.png``;
3. else the image's position in its document, from 0: ``000/0001.html#image=3``, ``train.parquet#row=7&image=0``.

So a source has the same addresses wherever it is stored. A table's rows name their images as the table's author did,
sometimes by absolute paths of another machine: such paths are not part of the source.
"""

from pairmill.catalog.terms.secrets import SIGNED_QUERY as SIGNED
from pairmill.catalog.terms.secrets import USER

_ON_THE_NET = "regexp_matches({0}, '^(https?|ftp|s3)://', 'i')"
# Strip the format name that `Source.uri` has before the location if the user named a format.
_PLACE = "regexp_replace(source, '^[a-z][a-z0-9_]{2,31}:(/([^/]|$))', '\\1')"
_FOREIGN = "contains(url, '&path=') AND regexp_matches(url, '#row=[0-9]+&path=(/|[A-Za-z]:|file:)')"
_FRAGMENT = "CASE WHEN contains(page, '#') THEN '&' ELSE '#' END || 'image=' || position"


def with_released_address(images: str) -> str:
    """Return SQL for the query ``images`` with a column ``raw_image_url`` added, the released address of each image.

    ``images`` has the columns image_id, document_id, position, url, and others. The added column is NULL if the lake
    lacks the image's document. Only the documents of these images are read.
    """
    return (
        f"(WITH shown AS MATERIALIZED ({images}), "
        f"pages AS ({released_pages('SELECT document_id FROM shown')}) "
        f"SELECT shown.*, coalesce(CASE WHEN NOT ({_FOREIGN}) THEN {_public('url')} END, page || {_FRAGMENT}) "
        "AS raw_image_url FROM shown LEFT JOIN pages USING (document_id))"
    )


def released_pages(document_ids: str) -> str:
    """Return SQL for document_id, folder and ``page``, the released address of each of these documents.

    ``document_ids`` is a query. ``page`` is NULL for a document in no folder of its source and not on the web.
    """
    found = (
        f"SELECT document_id, any_value(uri) AS uri, any_value({_PLACE}) AS place FROM documents "
        f"WHERE document_id IN ({document_ids}) GROUP BY document_id"
    )
    return f"SELECT document_id, folder, {_public('uri')} AS page FROM (SELECT *, {_folder()} AS folder FROM ({found}))"


def _folder() -> str:
    """Return SQL for the local folder, ending in a slash, that contains a source's files; '' for a remote source."""
    whole = "rtrim(place, '/') || '/'"
    return (
        f"CASE WHEN NOT starts_with(place, '/') THEN '' WHEN starts_with(uri, {whole}) THEN {whole} "
        "ELSE regexp_replace(place, '[^/]*$', '') END"
    )


def _public(uri: str) -> str:
    """Return SQL for a public address, or of a path below ``folder``; NULL for anything else."""
    # Most addresses contain neither character, and a regular expression takes a microsecond.
    secret = f"contains({uri}, '@') OR contains({uri}, '?')"
    plain = f"regexp_replace(regexp_replace({uri}, '{USER}', '\\1', 'i'), '{SIGNED}', '\\1', 'is')"
    return (
        f"CASE WHEN {_ON_THE_NET.format(uri)} THEN CASE WHEN {secret} THEN {plain} ELSE {uri} END "
        f"WHEN folder <> '' AND starts_with({uri}, folder) THEN substr({uri}, length(folder) + 1) END"
    )
