"""Compile a recipe's rules for SQL: which score columns each rule reads, and from which stage it applies.

A rule applies from the stage that computes its scores. Rules are ordered by stage, then by their order in the recipe: a
row dropped at a cheap stage has no expensive score, so attributing the drop to the expensive rule would be wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.parts_of_texts import OWN
from pairmill.catalog.recipe.recipe import Recipe, Rule
from pairmill.catalog.recipe.thresholds import NUMBERS, Quantity, bounds, compared_score
from pairmill.catalog.terms.declared import declared, is_free, scores_of
from pairmill.catalog.terms.error import BadRecipe, did_you_mean
from pairmill.catalog.terms.score import Score, Stage
from pairmill.catalog.terms.scores import OWN_COLUMNS, SENTENCE_STRUCTURE, head_score, imported_score

CAPTION_TABLES = ("captions", "caption_similarity")  # a scorer of each captioner fills both
READABLE = Rule.model_construct(name="readable", keep="brightness IS NOT NULL")


@dataclass(frozen=True, eq=False)
class ScoreColumns:
    """The columns of one table that rules may read.

    ``columns``: name in rules -> SQL type. ``source``: name in rules -> SQL that reads the value from the table.
    """

    table: str
    stage: Stage
    columns: Mapping[str, str]
    source: Mapping[str, str]


@dataclass(frozen=True)
class Check:
    """One compiled rule: an item passes if the SQL condition ``keep`` is true; it reads ``columns`` of ``tables``.

    A calibrated ``rule`` without a threshold compares with NULL, so no item passes. ``spares`` is an SQL condition of
    items that pass although ``keep`` is false, '' without any; not if ``keep`` is NULL, as for a missing score.
    """

    name: str
    keep: str
    columns: tuple[str, ...]
    tables: tuple[str, ...]
    stage: Stage
    rule: Rule
    spares: str = ""

    @property
    def passes(self) -> str:
        """The SQL condition that an item passes: ``keep``, or for spared items also false."""
        return f"({self.keep}) OR (({self.keep}) IS FALSE AND {self.spares})" if self.spares else self.keep

    @property
    def shown(self) -> str:
        """The predicate as displayed to users, with the requested share of a calibrated rule as a comment."""
        return self.keep + self.rule.remark

    @property
    def lacks_threshold(self) -> bool:
        """Whether the rule is calibrated and its threshold is not computed yet."""
        return self.rule.calibrate is not None and self.rule.calibrate.threshold is None

    def at(self, threshold: float) -> "Check":
        """Return a copy of the calibrated check with ``threshold`` set."""
        rule = self.rule.at(threshold)
        return replace(self, rule=rule, keep=predicate.normal_form(rule.name, rule.predicate))


@dataclass(frozen=True)
class Plan:
    """A recipe, its compiled rules, the scores to compute, and the digests of the current scorers by table.

    ``candidate_checks`` are the rules on an image with one of its retrieved sentences. ``spares`` is the SQL condition
    of images that no rule drops (`Check.spares`), '' without any.

    ``scorers`` grows during a run: a scorer that depends on centroids has a digest only once they are trained.
    """

    recipe: Recipe
    image_checks: tuple[Check, ...]
    sentence_checks: tuple[Check, ...]
    scorers: Mapping[str, str]
    scores: tuple[Score, ...]
    candidate_checks: tuple[Check, ...] = ()
    spares: str = ""

    def with_scorer(self, table: str, digest: str) -> "Plan":
        """Return a copy of the plan with ``digest`` as the current scorer of ``table``."""
        return replace(self, scorers={**self.scorers, table: digest})

    def sparing(self, condition: str) -> "Plan":
        """Return a copy of the plan whose rules on images, but `readable`, spare those of the SQL ``condition``."""
        checks = (each if each.rule is READABLE else replace(each, spares=condition) for each in self.image_checks)
        return replace(self, image_checks=tuple(checks), spares=condition)

    def scorer(self, table: str) -> str:
        """Return the digest of the current scorer of ``table``; '' if not known yet, which matches no row."""
        return self.scorers.get(table, "")

    def of_captioner(self, table: str, place: int) -> str:
        """Return the key in the plan's ``scorers`` of a CAPTION_TABLES table for the captioner at index ``place``."""
        return table if place == 0 else f"{table} {self.recipe.captioned_by[place].name}"

    @property
    def first_captions(self) -> str:
        """Key in ``scorers`` of the captions by the first model; of those that came along, if no model is asked."""
        return self.of_captioner("captions", int(self.recipe.captions.own is not None and bool(self.recipe.captioners)))

    @property
    def chooses_captions(self) -> bool:
        """Whether an image's caption is chosen among several captioners."""
        return self.recipe.captions.way != "first"

    @property
    def compared_by(self) -> ScoreColumns:
        """The columns of the score by which `captions.choose: best` compares captions."""
        by = self.recipe.captions.by
        return next(table for table in self.image_tables if by in table.columns)

    @property
    def compared_captioners(self) -> range:
        """The indexes of the captioners of which one is chosen for each image; the first alone if nothing is chosen."""
        n = len(self.recipe.captioned_by)
        return range(n if self.chooses_captions else min(n, 1))

    def made_by(self, table: str) -> tuple[str, ...]:
        """Return the digests of all current scorers whose rows of ``table`` are read.

        There are several for captions that are chosen among captioners.
        """
        if table not in CAPTION_TABLES or not self.chooses_captions:
            return (self.scorer(table),)
        return tuple(self.scorer(self.of_captioner(table, place)) for place in self.compared_captioners)

    def alone(self, place: int) -> "Plan":
        """Return the plan as if the captioner at index ``place`` were the recipe's only one."""
        first = Recipe.model_fields["captions"].default
        captioner = self.recipe.captioned_by[place]
        only = {"captioners": [captioner], "captions": first}
        if captioner.name == OWN:
            only = {"captioners": [], "captions": first.model_copy(update={"own": "keep"})}
        recipe = self.recipe.model_copy(update=only)
        own = {table: self.scorer(self.of_captioner(table, place)) for table in CAPTION_TABLES}
        return replace(self, recipe=recipe, scorers={**self.scorers, **own})

    def checks(self, kind: str) -> tuple[Check, ...]:
        """Return the compiled rules on ``kind`` ('image' or 'sentence')."""
        return self.image_checks if kind == "image" else self.sentence_checks

    def with_threshold(self, kind: str, name: str, threshold: float) -> "Plan":
        """Return the plan, and its recipe, with the threshold of the calibrated rule ``name`` set."""
        rules = [rule.at(threshold) if rule.name == name else rule for rule in getattr(self.recipe, f"{kind}s")]
        checks = tuple(check.at(threshold) if check.name == name else check for check in self.checks(kind))
        recipe = self.recipe.model_copy(update={f"{kind}s": rules})
        return replace(self, recipe=recipe, **{f"{kind}_checks": checks})

    @cached_property
    def candidate_columns(self) -> tuple[tuple[str, ScoreColumns], ...]:
        """The scores of pairs that the cut reads, for rules on candidates and `rank_by`: (name in rules, its table)."""
        read = {column for check in self.candidate_checks for column in check.columns}
        read |= {self.recipe.association.rank_by}
        tables = tables_of("pair", self.scores)[1:]  # behind the cosine
        return tuple((name, table) for table in tables for name in table.columns if name in read)

    def computes(self, table: str) -> bool:
        """Return whether a run of the plan fills ``table`` with a score."""
        return any(score.table == table for score in self.scores)

    def made_from_texts(self, table: str) -> tuple[Score, ...]:
        """Return the scores that compare an image with its generated text of ``table``, 'captions' or 'synthetic'."""
        stage = {"captions": Stage.CAPTION, "synthetic": Stage.FUSE}[table]
        return tuple(score for score in self.scores if score.op and score.by_input and score.stage == stage)

    @cached_property
    def image_tables(self) -> tuple[ScoreColumns, ...]:
        """The score columns that rules on images may read: the image's own, then those of the plan's scores."""
        return tables_of("image", self.scores)

    @cached_property
    def sentence_tables(self) -> tuple[ScoreColumns, ...]:
        """The score columns that rules on sentences may read: the sentence's own, then those of the plan's scores."""
        return tables_of("sentence", self.scores)


def tables_of(kind: str, scores: Sequence[Score]) -> tuple[ScoreColumns, ...]:
    """Return the score columns that rules on items of ``kind`` may read: the item's own, then those of ``scores``.

    ``kind`` is 'image', 'sentence' or 'pair'.
    """
    table = {"image": "images", "sentence": "sentence_content", "pair": "match_candidates"}[kind]
    types = {name: sql_type for name, (sql_type, _) in OWN_COLUMNS[kind].items()}
    base = ScoreColumns(table, Stage.INGEST, types, {name: name for name in types})
    return base, *(
        ScoreColumns(score.table, score.stage, score.rule_columns, score.source)
        for score in scores_of(kind, scores)
        if score.rule_columns
    )


def compile_plan(
    recipe: Recipe, scorers: Mapping[str, str] | None = None, scores: Sequence[Score] | None = None
) -> Plan:
    """Compile and validate every rule of ``recipe``; sort the rules by the stage from which they apply.

    ``scorers`` are the digests of the scorers by table; None before they are identified. ``scores`` are the scores that
    rules may read; by default all that this installation declares.

    Raises BadPredicate if a rule is not one scalar boolean over known columns, BadRecipe if a rule reads a score that
    this recipe does not compute, or the recipe names an undeclared score.
    """
    known = _add_named(recipe, declared() if scores is None else tuple(scores))
    _check_named_scores(recipe, known)
    benchmarks = () if recipe.contamination is None else (recipe.contamination.rule,)
    images = _compile((READABLE, *recipe.images, *benchmarks), tables_of("image", known), recipe, known)
    # Scoring decodes every image, unless the recipe only asks captioners, to whom it leaves that.
    has_pixel_rule = any(check.stage == Stage.PIXELS and check.rule is not READABLE for check in images)
    decodes = has_pixel_rule or "clip" in recipe.models or recipe.duplicates.phash is not None
    if not decodes:
        images = tuple(check for check in images if check.rule is not READABLE)
    pairs, retrieves = tables_of("pair", known), recipe.association.is_on
    sentences = _compile(tuple(recipe.sentences) if retrieves else (), tables_of("sentence", known), recipe, known)
    candidates = _compile(tuple(recipe.candidates) if retrieves else (), pairs, recipe, known)
    read = {table for check in (*images, *sentences, *candidates) for table in check.tables}
    read.update(_ranking_tables(recipe, known))
    wanted = (score for score in known if score.table in read or score.name in recipe.scores)
    read.update([table for score in wanted for table in score.made_from])
    of_pixels = {score.table for score in known if score.of == "image" and score.stage == Stage.PIXELS}
    unasked = {score.table for score in known if score.on_demand} | (set() if decodes else of_pixels)
    able = [score for score in known if not lacking(recipe, score)]
    asked = [each for each in able if each.table not in unasked or each.table in read or each.name in recipe.scores]
    return Plan(recipe, images, sentences, dict(scorers or {}), tuple(asked), candidates)


def _add_named(recipe: Recipe, known: tuple[Score, ...]) -> tuple[Score, ...]:
    """Add the scores that the recipe names, imported ones and heads, to ``known``. BadRecipe for a taken name."""
    for setting, names, score_of in (
        ("imported", recipe.imported, imported_score),
        ("heads", recipe.heads or (), head_score),
    ):
        for name in dict.fromkeys(names):
            if not is_free(name, known):
                raise BadRecipe(f"recipe '{recipe.name}', {setting}: another score has the name '{name}'")
            known = (*known, score_of(name))
    return known


def lacking(recipe: Recipe, score: Score) -> str:
    """Return the setting that ``score`` needs and ``recipe`` lacks, such as 'association'; '' if it lacks none."""
    if score.needs and not getattr(recipe, "captioned_by" if score.needs == "captioners" else score.needs):
        return score.needs
    if score.of != "image" and not recipe.association.is_on:
        return "association"
    return "models.clip" if score.needs_clip and "clip" not in recipe.models else ""


def _ranking_tables(recipe: Recipe, known: Sequence[Score]) -> Iterator[str]:
    """Yield the tables of the scores that rank candidates and compare captions. Raise BadRecipe for unknown ones."""
    if wanted := recipe.association.rank_by:
        yield _table_of(recipe, "association.rank_by", wanted, "pairs", scores_of("pair", known))
    if recipe.captions.way == "best":
        of_captions = [each for each in known if each.by_input and each.stage == Stage.CAPTION]
        able, by = [score for score in of_captions if not lacking(recipe, score)], recipe.captions.by
        if needs := next((lacking(recipe, each) for each in of_captions if by in each.rule_columns), ""):
            others = " or ".join(name for each in able for name, kind in each.rule_columns.items() if kind == "DOUBLE")
            why = f"'{by}' needs `{needs}`, which the recipe lacks; add it, or write {others or 'another way'}"
            raise BadRecipe(f"recipe '{recipe.name}', captions.by: {why}")
        yield _table_of(recipe, "captions.by", by, "captions", able)


def _table_of(recipe: Recipe, setting: str, wanted: str, of: str, scores: Sequence[Score]) -> str:
    """Return the table of the score that has the number ``wanted``. Raise BadRecipe if none of ``scores`` has it."""
    homes = {name: score.table for score in scores for name, kind in score.rule_columns.items() if kind == "DOUBLE"}
    if wanted not in homes:
        remedy = did_you_mean(wanted, homes) or f"there are {', '.join(homes)}."
        raise BadRecipe(f"recipe '{recipe.name}', {setting}: no score of {of} has '{wanted}'; {remedy}")
    return homes[wanted]


def _check_named_scores(recipe: Recipe, known: Sequence[Score]) -> None:
    """Raise BadRecipe if the recipe's ``scores`` names a score that nothing declares."""
    names = [score.name for score in known if score.on_demand]
    for name in recipe.scores:
        if name not in names:
            remedy = did_you_mean(name, names) or "install the package that declares it."
            raise BadRecipe(f"recipe '{recipe.name}', scores: nothing declares '{name}'; {remedy}")


def _compile(
    rules: tuple[Rule, ...], tables: Sequence[ScoreColumns], recipe: Recipe, scores: Sequence[Score]
) -> tuple[Check, ...]:
    """Compile rules into checks sorted by stage. Raise BadPredicate or BadRecipe as `compile_plan` does."""
    home = {column: table for table in tables for column in table.columns}
    known = {column: table.columns[column] for column, table in home.items()}
    needs = {score.table: setting for score in scores if (setting := lacking(recipe, score))}
    checks = []
    for rule in rules:
        if rule.calibrate is not None:
            predicate.check_number(rule.name, compared_score(rule.name, rule.keep).expression, known)
        columns = tuple(sorted(predicate.check(rule.name, rule.predicate, known)))
        homes = {home[column] for column in columns}
        for table in homes:
            if table.table in needs:
                raise BadRecipe(
                    f"recipe '{recipe.name}', rule '{rule.name}': this recipe computes no {table.table}; give it "
                    f"`{needs[table.table]}` or remove the rule"
                )
        stage = max((table.stage for table in homes), default=Stage.INGEST)
        keep = predicate.normal_form(rule.name, rule.predicate)
        checks.append(Check(rule.name, keep, columns, tuple(sorted(t.table for t in homes)), stage, rule))
    return tuple(sorted(checks, key=lambda check: check.stage))


def quantities(check: Check, types: Mapping[str, str]) -> list[Quantity]:
    """Return the numeric quantities that one compiled rule reads: first those with thresholds, then other columns.

    ``types`` maps columns to SQL types.
    """
    found = bounds(check.name, check.keep)
    covered = {column for quantity in found.values() for column in quantity.columns}
    rest = [column for column in check.columns if types.get(column) in NUMBERS and column not in covered]
    return [*found.values(), *(Quantity(column, (column,), check.name) for column in rest)]


def models_of(recipe: Recipe) -> dict[str, str]:
    """Return name -> spec of all models that the recipe names or that its scores use by default."""
    defaults = {score.model: score.default_model for score in compile_plan(recipe).scores if score.default_model}
    if recipe.tags is not None and recipe.tags.mined:
        defaults[SENTENCE_STRUCTURE.model] = SENTENCE_STRUCTURE.default_model
    return defaults | recipe.models
