"""A recipe made ready for SQL: which rule reads which score, and from which stage of the run on it bites.

A rule bites from the stage that computes its scores on. Rules are applied in the order of their stage, then of the
recipe, because a row that fell at a cheap stage has no dear score: attributing its fall to the dear rule would be
wrong.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum

from catalog.lake.error import BadRecipe
from catalog.recipe import predicate
from catalog.recipe.recipe import Recipe, Rule


class Stage(IntEnum):
    """When a score exists; a stage sees the rows that pass the rules of all stages before it."""

    INGEST = 0
    PIXELS = 1
    CLIP = 2
    ASSOCIATE = 3
    CAPTION = 4


@dataclass(frozen=True, eq=False)
class ScoreColumns:
    """The columns that one table offers to rules: name -> SQL type, and how each is read from the table."""

    table: str
    stage: Stage
    columns: Mapping[str, str]
    source: Mapping[str, str]


def _table(table: str, stage: Stage, renamed: Mapping[str, str] | None = None, **columns: str) -> ScoreColumns:
    source = {name: (renamed or {}).get(name, name) for name in columns}
    return ScoreColumns(table, stage, columns, source)


IMAGE_TABLES = (
    _table("images", Stage.INGEST, width="INTEGER", height="INTEGER", format="VARCHAR", n_bytes="BIGINT",
           url="VARCHAR", alt_text="VARCHAR", position="INTEGER"),
    _table("image_quality", Stage.PIXELS, sharpness="DOUBLE", brightness="DOUBLE", colourfulness="DOUBLE",
           image_entropy="DOUBLE"),
    _table("image_similarity", Stage.ASSOCIATE, alt_similarity="DOUBLE", match_similarity="DOUBLE",
           best_similarity="DOUBLE"),
    _table("captions", Stage.CAPTION, {"caption": "text", "caption_status": "status", "caption_tokens": "n_tokens"},
           caption="VARCHAR", caption_status="VARCHAR", caption_tokens="INTEGER"),
    _table("caption_similarity", Stage.CAPTION, caption_similarity="DOUBLE"),
)  # fmt: skip
SENTENCE_TABLES = (
    _table("sentence_content", Stage.INGEST, text="VARCHAR", repeats="BIGINT"),
    _table("sentence_quality", Stage.PIXELS, n_words="INTEGER", text_entropy="DOUBLE", has_url="BOOLEAN",
           has_emoji="BOOLEAN", is_boilerplate="BOOLEAN", language="VARCHAR"),
)  # fmt: skip
READABLE = Rule.model_construct(name="readable", keep="brightness IS NOT NULL")


@dataclass(frozen=True)
class Check:
    """One compiled rule: ``keep`` is a scalar boolean over ``columns``, which come from ``tables``."""

    name: str
    keep: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    stage: Stage


@dataclass(frozen=True)
class Plan:
    """A recipe, its compiled rules and the digests of the scorers that this run uses, by table.

    ``scorers`` grows while a run goes on: what is made from centroids has an identity only once they are trained.
    """

    recipe: Recipe
    image_checks: tuple[Check, ...]
    sentence_checks: tuple[Check, ...]
    scorers: Mapping[str, str]

    def with_scorer(self, table: str, digest: str) -> "Plan":
        return replace(self, scorers={**self.scorers, table: digest})

    def scorer(self, table: str) -> str:
        """The digest in use for ``table``; '' where it cannot be known yet, which no row has."""
        return self.scorers.get(table, "")


def compile_plan(recipe: Recipe, scorers: Mapping[str, str]) -> Plan:
    """Check every rule of ``recipe`` before any work and sort them by the stage from which they bite.

    Raises BadPredicate for a rule that is not one scalar boolean over known columns, BadRecipe for a rule on a score
    that this recipe does not compute.
    """
    absent = () if recipe.captioners else ("captions", "caption_similarity")
    images = _compile((READABLE, *recipe.images), IMAGE_TABLES, absent, recipe.name)
    sentences = _compile(tuple(recipe.sentences), SENTENCE_TABLES, (), recipe.name)
    return Plan(recipe, images, sentences, dict(scorers))


def _compile(
    rules: tuple[Rule, ...], tables: tuple[ScoreColumns, ...], absent: tuple[str, ...], recipe: str
) -> tuple[Check, ...]:
    home = {column: table for table in tables for column in table.columns}
    known = {column: table.columns[column] for column, table in home.items()}
    checks = []
    for rule in rules:
        columns = tuple(sorted(predicate.check(rule.name, rule.keep, known)))
        homes = {home[column] for column in columns}
        for table in homes:
            if table.table in absent:
                raise BadRecipe(
                    f"recipe '{recipe}', rule '{rule.name}': this recipe computes no {table.table}; add a captioner to "
                    "'captioners' or remove the rule"
                )
        stage = max((table.stage for table in homes), default=Stage.INGEST)
        keep = predicate.normal_form(rule.name, rule.keep)
        checks.append(Check(rule.name, keep, columns, tuple(sorted(t.table for t in homes)), stage))
    return tuple(sorted(checks, key=lambda check: check.stage))
