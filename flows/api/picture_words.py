"""Search pictures by words: load a version's CLIP, and provide the SQL function `pictures_of_words`."""

import re
from functools import cache
from typing import TYPE_CHECKING

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries import datasets
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.sql.sql_answer import provide_pictures_of_words
from pairmill.catalog.terms.error import PairmillError

if TYPE_CHECKING:  # 0.2 s
    from pairmill.ops.models.clip.clip import Clip

_NAMED = re.compile(r"\bpictures_of_words\b", re.IGNORECASE)


def version_clip(lake: Lake, version: Dataset) -> "tuple[Clip, str]":
    """Return a version's CLIP model, and the digest of the scorer of its vectors. The weights load at the first use.

    Raises:
        PairmillError: The version has no vectors of pictures, or the model's files are no longer those that made them.
    """
    from pairmill.catalog.queries.figures.report import plan_of
    from pairmill.catalog.write.scorer import model_of
    from pairmill.ops.models.clip.clip import Clip
    from pairmill.ops.models.model_digest import model_digest

    plan = plan_of(lake, version)
    scorer = plan.scorer("image_embedding")
    found = model_of(lake, scorer)
    if found is None:
        raise PairmillError(f"{version} has no vectors of pictures; a run with a CLIP model makes them.")
    spec = plan.recipe.models["clip"]
    if model_digest(spec) != found:
        raise PairmillError(
            f"model '{spec}' is not the one whose vectors {version} holds; put its files back, or run with the new one."
        )
    return Clip(spec, plan.recipe.clip.precision), scorer


def provide_words(lake: Lake, sql: str) -> None:
    """Create the SQL function ``pictures_of_words(words, n := 10)`` if ``sql`` calls it.

    It returns the columns of ``nearest_pictures``, from the vectors of the newest version's CLIP. The model loads when
    the statement runs.

    Raises:
        PairmillError: No version is published, or its CLIP is not there.
    """
    if not _NAMED.search(sql):
        return
    versions = datasets.published(lake)
    if not versions:
        raise PairmillError("no dataset names a CLIP model yet; publish one with `pairmill run`.")
    clip, scorer = version_clip(lake, max(versions, key=lambda each: each.created_at))

    @cache
    def vector_of_words(words: str) -> bytes:
        return clip.embed_texts([words])[0].astype("<f2").tobytes()

    provide_pictures_of_words(lake, scorer, vector_of_words)
