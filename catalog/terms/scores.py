"""Read Pairmill's own scores, each declared once in scores.toml; declare those that a recipe names: imported, heads."""

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pairmill.catalog.terms.score import Column, Score, Stage, of_generated_texts


def _as_score(name: str, of: Mapping[str, Any]) -> Score:
    """Convert one table of scores.toml to a declaration: lists become tuples, the name of a stage its `Stage`."""
    columns = tuple(Column(column, *about) for column, about in of["columns"].items())
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in of.items()}
    return Score(**fields | {"name": name, "columns": columns, "stage": Stage[of.get("stage", "PIXELS")]})


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))  # 1.2 CPU ms
# Columns that rules may read before anything is scored, by kind of item: name -> (SQL type, meaning).
OWN_COLUMNS: dict[str, dict[str, list[str]]] = _TABLES.pop("own_columns")
_BY_NAME = {name: _as_score(name, table) for name, table in _TABLES.items()}
CAPTIONS, SYNTHETIC, TAGS, RIGHTS = (_BY_NAME[name] for name in ("caption", "fuse", "tags", "rights"))
IMAGE_QUALITY, IMAGE_HASH = _BY_NAME["image_quality"], _BY_NAME["image_hash"]
IMAGE_EMBEDDING, SENTENCE_EMBEDDING = _BY_NAME["image_embedding"], _BY_NAME["sentence_embedding"]
IMAGE_SIMILARITY, CAPTION_SIMILARITY = _BY_NAME["image_similarity"], _BY_NAME["caption_similarity"]
SYNTHETIC_SIMILARITY, PERPLEXITY = _BY_NAME["synthetic_similarity"], _BY_NAME["perplexity"]
SENTENCE_SIGNATURE, SENTENCE_STRUCTURE = _BY_NAME["sentence_signature"], _BY_NAME["sentence_structure"]
SENTENCE_QUALITY, CORPUS_ENTROPY = _BY_NAME["sentence_quality"], _BY_NAME["corpus_entropy"]
ITM, JUDGE_TEXT = _BY_NAME["itm"], _BY_NAME["judge_text"]
OWN = (*_BY_NAME.values(), *of_generated_texts(ITM))

IMPORTED = "imported_"
# With the prefix, a name fits into the 63 bytes of Postgres' longest name.
IMPORTED_NAME = r"^[a-z][a-z0-9_]{0,52}$"


def imported_score(name: str) -> Score:
    """Return the declaration of the imported score ``name``: table ``imported_NAME``, column ``NAME``.

    No op computes it, so it is never pending, and its rules apply before any score is computed.
    """
    column = Column(name, "DOUBLE", "imported by `pairmill import-scores`; NULL where the file had no row")
    return Score(IMPORTED + name, "image", (column,), Stage.INGEST, on_demand=False, step="import scores")


HEAD = "head_"


def head_score(name: str) -> Score:
    """Return the declaration of the score by the head ``name`` of a recipe: table ``head_NAME``, column ``NAME``."""
    own = Column(name, "DOUBLE", "by a head over the picture's CLIP vector, on its own scale", added_as="head_number")
    op, settings = "pairmill.ops.models.clip.vector_head:VectorHead", {"head_file": f"heads.{name}"}
    return Score(HEAD + name, "image", (own,), Stage.CLIP, ("image_vector",), op, settings, "clip", on_demand=False)


def imported_in(tables: Iterable[str]) -> tuple[Score, ...]:
    """Return the declarations of the imported scores among a lake's ``tables``, sorted by name."""
    return tuple(imported_score(table.removeprefix(IMPORTED)) for table in sorted(tables) if table.startswith(IMPORTED))


def named_in(tables: Iterable[str]) -> tuple[Score, ...]:
    """Return the declarations of the scores that recipes name, imported and by heads, among a lake's ``tables``."""
    heads = (head_score(table.removeprefix(HEAD)) for table in sorted(tables) if table.startswith(HEAD))
    return (*imported_in(tables), *heads)
