"""Write SQL for the address under which a picture is released: one that means the same on every machine.

``images.url`` opens a picture here. It may be an absolute path, or the whole picture as a ``data:`` URI; a published
pair says instead, the first that applies:

1. an address on the web or S3, as it stands, without user and password, and without a query that signs it;
2. a file of the source, or a part of one, by its path below the source: ``000/0001-2.jpg``, ``shards/7.tar#03.png``; of
   a source that is one file, the file's name stands first: ``7.tar#03.png``;
3. else the picture's place in its document, from 0 on: ``000/0001.html#image=3``, ``train.parquet#row=7&image=0``.

So the same source has the same addresses wherever it stands. A table's row names its pictures as its author did, by
absolute paths of another machine sometimes: such a one is no part of the source.
"""

from pairmill.catalog.terms.secrets import SIGNED_QUERY as SIGNED
from pairmill.catalog.terms.secrets import USER

_ON_THE_NET = "regexp_matches({0}, '^(https?|ftp|s3)://', 'i')"
# As `Source.uri` is made: the place, behind the name of a format where one was asked for.
_PLACE = "regexp_replace(source, '^[a-z][a-z0-9_]{2,31}:(/([^/]|$))', '\\1')"
_FOREIGN = "contains(url, '&path=') AND regexp_matches(url, '#row=[0-9]+&path=(/|[A-Za-z]:|file:)')"
_FRAGMENT = "CASE WHEN contains(page, '#') THEN '&' ELSE '#' END || 'image=' || position"


def with_released_address(images: str) -> str:
    """SQL of the query ``images`` (image_id, document_id, position, url, …) with one column more, ``raw_image_url``.

    NULL where the lake holds no document of the picture. Of the documents only those of these images are read.
    """
    pages = (
        f"SELECT document_id, any_value(uri) AS uri, any_value({_PLACE}) AS place FROM documents "
        "WHERE document_id IN (SELECT document_id FROM shown) GROUP BY document_id"
    )
    return (
        f"(WITH shown AS MATERIALIZED ({images}), "
        f"pages AS (SELECT document_id, folder, {_public('uri')} AS page FROM (SELECT *, {_folder()} AS folder "
        f"FROM ({pages}))) "
        f"SELECT shown.*, coalesce(CASE WHEN NOT ({_FOREIGN}) THEN {_public('url')} END, page || {_FRAGMENT}) "
        "AS raw_image_url FROM shown LEFT JOIN pages USING (document_id))"
    )


def _folder() -> str:
    """SQL of the local folder, with a slash at its end, below which a source's files lie; '' of a source elsewhere."""
    whole = "rtrim(place, '/') || '/'"
    return (
        f"CASE WHEN NOT starts_with(place, '/') THEN '' WHEN starts_with(uri, {whole}) THEN {whole} "
        "ELSE regexp_replace(place, '[^/]*$', '') END"
    )


def _public(uri: str) -> str:
    """SQL of an address that others can use, or of a path below ``folder``; NULL of anything else."""
    # Most addresses hold neither sign, and a regular expression takes a microsecond.
    secret = f"contains({uri}, '@') OR contains({uri}, '?')"
    plain = f"regexp_replace(regexp_replace({uri}, '{USER}', '\\1', 'i'), '{SIGNED}', '\\1', 'is')"
    return (
        f"CASE WHEN {_ON_THE_NET.format(uri)} THEN CASE WHEN {secret} THEN {plain} ELSE {uri} END "
        f"WHEN folder <> '' AND starts_with({uri}, folder) THEN substr({uri}, length(folder) + 1) END"
    )
