"""Define how a score is declared; schema, plan, facts, work lists, quarantine, report and docs follow from it.

A package declares its own by an entry point of the group ``pairmill.scorers`` that names a `Score`.
infra/docs/own-score.md shows one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Literal

# DuckDB types that a score column may have; each maps to one Arrow type (catalog/lake/arrow.py).
TYPES = ("BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "DOUBLE", "VARCHAR", "BLOB", "VARCHAR[]", "DOUBLE[]")
# Batch columns that the jobs running declared ops can provide, by kind of item.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "image": ("pixels", "luma", "encoded", "image_vector"),
    "sentence": ("text", "sentence_vector"),
    "pair": ("pixels", "text"),
}


class Stage(IntEnum):
    """Stage at which a score is computed; a stage processes the rows that pass the rules of all earlier stages.

    Ordered by cost: parsing a sentence takes a CPU millisecond, GPT-2 large hundreds. No lake stores the numbers.
    """

    INGEST = 0
    PIXELS = 1
    PARSE = 2
    LANGUAGE = 3
    CLIP = 4
    ASSOCIATE = 5
    CAPTION = 6
    FUSE = 7


# Stages at which a declared op may run, in order.
RUN_AT: Mapping[str, tuple[Stage, ...]] = {
    "image": (Stage.PIXELS, Stage.CLIP),
    "sentence": (Stage.PIXELS, Stage.PARSE, Stage.LANGUAGE, Stage.CLIP),
    "pair": (Stage.ASSOCIATE,),
}


@dataclass(frozen=True)
class Column:
    """One measured value: ``name`` in its table, unique over all scores; ``meaning`` with unit and range.

    ``rule`` is the name under which rules read the column: None for its own name, '' if no rule may read it.
    ``added_as`` is the op's name of the column, '' for the same. DOUBLEs are stored rounded to 4 decimals; BLOBs are
    vectors of little-endian fp16.
    """

    name: str
    type: str
    meaning: str
    rule: str | None = None
    added_as: str = ""

    @property
    def op_name(self) -> str:
        """The name under which the op adds the column to a batch."""
        return self.added_as or self.name

    @property
    def rule_name(self) -> str:
        """The name under which rules read the column; '' if no rule may read it."""
        return self.name if self.rule is None else self.rule


@dataclass(frozen=True)
class Score:
    """Declaration of one scorer: what it computes for each item ``of`` a kind ('image', 'sentence' or 'pair').

    A pair is an image with one of its candidate sentences. A score of pairs also scores an image with its caption and
    with its fused text (`of_generated_texts`).

    - ``name``: the name of the scorer and, unless ``table`` is set, of its table. The table is keyed by content:
      ``sha256`` of an image, ``content`` of a sentence, both of a pair.
    - ``stage``: the stage from which its rules apply. PIXELS runs on CPUs over all readable items; CLIP is for models.
      Before CLIP, PARSE is for sentence parsers and LANGUAGE for language models, so that an item dropped by the rules
      on a cheaper score never reaches a more expensive one.
    - ``reads``: the batch columns that its op reads, from INPUTS. Empty if a separate step fills the table.
    - ``op``: 'module:Class' of a frozen dataclass whose ``__call__(batch)`` adds the columns. The dataclass fields are
      settings and part of the scorer's identity, except ``batch_size`` (placement), ``version``, and ``model`` (a model
      spec, hashed by the content of its files).
    - ``settings``: op fields set from the recipe, by dotted key; other fields come from the recipe's ``scores.NAME``.
    - ``model``: the key of the recipe's ``models`` that sets ``op.model``; ``default_model`` if the recipe has no such
      key.
    - ``made_from``: tables whose scorers' digests are part of this scorer's identity; those of its inputs always are.
    - ``by_input``: each row stores the digest of its input texts, and is pending when the digest of the current inputs
      differs.
    - ``needs``: the recipe section without which the score is not computed.
    - ``on_demand``: computed only if a rule reads it or the recipe's ``scores`` names it.
    - ``step``: the name under which progress is shown and quarantine rows are stored.
    - ``unusable``: SQL condition for rows of items that could not be scored; replaying these items deletes the rows.
    - ``package``: the package that declares the score.
    """

    name: str
    of: Literal["image", "sentence", "pair"]
    columns: tuple[Column, ...]
    stage: Stage = Stage.PIXELS
    reads: tuple[str, ...] = ()
    op: str = ""
    settings: Mapping[str, str] = field(default_factory=dict, hash=False)
    model: str = ""
    default_model: str = ""
    made_from: tuple[str, ...] = ()
    by_input: bool = False
    needs: str = ""
    on_demand: bool = True
    step: str = ""
    unusable: str = ""
    table: str = ""
    package: str = "pairmill"

    def __post_init__(self) -> None:
        if not self.table:
            object.__setattr__(self, "table", self.name)
        if not self.step:
            object.__setattr__(self, "step", f"score {self.of}s")
        if not self.unusable and self.op:
            object.__setattr__(self, "unusable", f"{self.columns[0].name} IS NULL")

    @property
    def key(self) -> str:
        """The key column of the table: ``sha256`` of an image or a pair, ``content`` of a sentence."""
        return "content" if self.of == "sentence" else "sha256"

    @property
    def removed_by(self) -> dict[str, str]:
        """The columns by which a removal finds rows to delete: column -> 'picture' or 'sentence', whose id it holds."""
        of_pair = {"content": "sentence"} if self.of == "pair" else {}
        return {self.key: "sentence" if self.key == "content" else "picture"} | of_pair

    @property
    def rule_columns(self) -> dict[str, str]:
        """The columns that rules may read: name in rules -> SQL type."""
        return {column.rule_name: column.type for column in self.columns if column.rule_name}

    @property
    def source(self) -> dict[str, str]:
        """The columns that rules may read: name in rules -> column of the table."""
        return {column.rule_name: column.name for column in self.columns if column.rule_name}

    @property
    def table_columns(self) -> dict[str, str]:
        """All columns of the table, in order: name -> SQL type."""
        keys = {self.key: "VARCHAR"} | ({"content": "VARCHAR"} if self.of == "pair" else {})
        keys |= {"shard": "VARCHAR", "scorer": "VARCHAR"}
        keys |= {"input_digest": "VARCHAR"} if self.by_input else {}
        return keys | {"commit": "BIGINT"} | {column.name: column.type for column in self.columns}

    @property
    def vector_table(self) -> str:
        """The table of vectors that its op reads; '' if the op reads no vectors."""
        vectors = {"image_vector": "image_embedding", "sentence_vector": "sentence_embedding"}
        return next((vectors[name] for name in self.reads if name in vectors), "")

    @property
    def needs_clip(self) -> bool:
        """Whether the score comes from the recipe's `models.clip`, or from its vectors of images."""
        return self.model == "clip" or bool(self.vector_table) or "image_embedding" in self.made_from


def of_generated_texts(score: Score) -> tuple[Score, Score]:
    """Return (score with the caption, score with the fused text) of an image, derived from a score of pairs.

    They have the same op; columns and tables have the prefix ``caption_`` or ``synthetic_``. Rules on these columns
    apply once the text exists, and a row is pending when its text has changed.
    """
    of_captions = _of_generated_text(score, "caption", "its caption", Stage.CAPTION, "captioners", "captions")
    return of_captions, _of_generated_text(score, "synthetic", "its fused text", Stage.FUSE, "fuse", "fused texts")


def _of_generated_text(score: Score, prefix: str, text: str, stage: Stage, needs: str, texts: str) -> Score:
    """Return the score of an image with one kind of generated text, see `of_generated_texts`."""
    about = f"of the picture and {text}: "
    columns = tuple(
        replace(each, name=f"{prefix}_{each.name}", meaning=about + each.meaning, rule=None, added_as=each.op_name)
        for each in score.columns
        if each.rule_name
    )
    name, table, step = f"{prefix}_{score.name}", f"{prefix}_{score.table}", f"{score.step} of {texts}"
    changes = {"name": name, "of": "image", "columns": columns, "stage": stage, "by_input": True, "needs": needs}
    return replace(score, **changes, step=step, unusable="", table=table)
