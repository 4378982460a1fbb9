"""Define what declares a score, from which schema, plan, facts, work lists, quarantine, report and docs follow.

A package declares its own by an entry point of the group ``pairmill.scorers`` that names a `Score`; README shows one.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

# DuckDB types that a column of a score may have; each has one Arrow type (catalog/lake/arrow.py).
TYPES = ("BOOLEAN", "INTEGER", "BIGINT", "UBIGINT", "DOUBLE", "VARCHAR", "BLOB", "VARCHAR[]", "DOUBLE[]")
# What the two jobs that run declared ops can hand to them, by what is scored.
INPUTS: Mapping[str, tuple[str, ...]] = {
    "image": ("pixels", "luma", "image_vector"),
    "sentence": ("text", "sentence_vector"),
}


class Stage(IntEnum):
    """When a score exists; a stage sees the rows that pass the rules of all stages before it.

    In the order of their cost: a parse of a sentence takes a CPU millisecond, GPT-2 large hundreds. The numbers are an
    order and nothing else: no lake holds them.
    """

    INGEST = 0
    PIXELS = 1
    PARSE = 2
    LANGUAGE = 3
    CLIP = 4
    ASSOCIATE = 5
    CAPTION = 6
    FUSE = 7


# The stages at which a declared op may run, in their order.
RUN_AT: Mapping[str, tuple[Stage, ...]] = {
    "image": (Stage.PIXELS, Stage.CLIP),
    "sentence": (Stage.PIXELS, Stage.PARSE, Stage.LANGUAGE, Stage.CLIP),
}


@dataclass(frozen=True)
class Column:
    """One measured value: ``name`` in its table, unique over all scores; ``meaning`` with unit and range.

    ``rule`` is the name under which recipes' rules read it: its own name where it is None, '' where no rule may.
    DOUBLEs are stored rounded to 4 decimals, BLOBs are vectors of little-endian fp16.
    """

    name: str
    type: str
    meaning: str
    rule: str | None = None

    @property
    def rule_name(self) -> str:
        return self.name if self.rule is None else self.rule


@dataclass(frozen=True)
class Score:
    """What one scorer computes of each ``of`` ('image' or 'sentence').

    - ``name`` of the scorer and, unless ``table`` says another, of its table, which is keyed by content: ``sha256`` of
      a picture, ``content`` of a sentence.
    - ``stage``: from which stage on its rules apply. PIXELS runs on CPUs over all that is readable; CLIP is for models;
      before it, PARSE is for parsers of a sentence and LANGUAGE for language models, so that what the rules on a
      cheaper one drop never meets a dearer one.
    - ``reads``: columns of the batch that its op reads, of INPUTS. Empty where a step of its own fills the table.
    - ``op``: 'module:Class' of a frozen dataclass whose ``__call__(batch)`` adds the columns. Its fields are its
      settings and so its identity, but for ``batch_size`` (placement), ``version``, and ``model`` (a model spec, hashed
      by the content of its files).
    - ``settings``: fields of the op that come from the recipe, by dotted key; others from ``scores.NAME`` in it.
    - ``model``: the key of the recipe's ``models`` that fills ``op.model``; ``default_model`` where it has none.
    - ``made_from``: tables whose scorers' digests are part of this one's identity; those of its inputs always are.
    - ``by_input``: a row holds the digest of the texts that it was made from, and is pending when they differ.
    - ``needs``: the section of the recipe without which nothing computes it.
    - ``on_demand``: computed only where a rule reads it or the recipe's ``scores`` names it.
    - ``step``: under which name its work is shown and its quarantine rows are kept.
    - ``unusable``: SQL that finds the rows of items which could not be worked on; replaying them deletes these.
    - ``package``: who declares it.
    """

    name: str
    of: Literal["image", "sentence"]
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
        """The column that names the scored content."""
        return "sha256" if self.of == "image" else "content"

    @property
    def rule_columns(self) -> dict[str, str]:
        """Name in rules -> SQL type, of the columns that rules may read."""
        return {column.rule_name: column.type for column in self.columns if column.rule_name}

    @property
    def source(self) -> dict[str, str]:
        """Name in rules -> column of the table."""
        return {column.rule_name: column.name for column in self.columns if column.rule_name}

    @property
    def table_columns(self) -> dict[str, str]:
        """Name -> SQL type of the whole table, in order."""
        keys = {self.key: "VARCHAR", "shard": "VARCHAR", "scorer": "VARCHAR"}
        keys |= {"input_digest": "VARCHAR"} if self.by_input else {}
        return keys | {"commit": "BIGINT"} | {column.name: column.type for column in self.columns}

    @property
    def vector_table(self) -> str:
        """The table of vectors that its op reads, '' where it reads none."""
        vectors = {"image_vector": "image_embedding", "sentence_vector": "sentence_embedding"}
        return next((vectors[name] for name in self.reads if name in vectors), "")
