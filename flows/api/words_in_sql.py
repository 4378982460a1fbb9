"""Let SQL find pictures by words: the table function `pictures_of_words`, in `pairmill sql` and Python alone."""

import re
from functools import cache

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.sql.own_macros import provide_pictures_of_words
from pairmill.catalog.terms.error import PairmillError

_NAMED = re.compile(r"\bpictures_of_words\b", re.IGNORECASE)


def provide_words(lake: Lake, sql: str) -> None:
    """Create ``pictures_of_words(words, n := 10)`` if ``sql`` names it: columns as of ``nearest_pictures``.

    It searches the vectors of the newest version's CLIP. The model loads when the statement runs.

    Raises:
        PairmillError: No version is published, or its CLIP is not there.
    """
    if not _NAMED.search(sql):
        return
    from pairmill.flows.api.version_clip import version_clip  # reads of the model, 0.2 s

    versions = datasets.published(lake)
    if not versions:
        raise PairmillError("no dataset names a CLIP model yet; publish one with `pairmill run`.")
    clip, scorer = version_clip(lake, max(versions, key=lambda each: each.created_at))

    @cache
    def vector_of_words(words: str) -> bytes:
        return clip.embed_texts([words])[0].astype("<f2").tobytes()

    provide_pictures_of_words(lake, scorer, vector_of_words)
