"""Define the settings of a run: lake, workers, paths of models and sources. None changes a dataset's identity."""

import os
from collections.abc import Iterable
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from pairmill.catalog.recipe.parts_of_texts import check_vocabulary
from pairmill.catalog.recipe.predicate import columns_of
from pairmill.catalog.recipe.recipe import Recipe, apply_overrides, load
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import BadRecipe
from pairmill.flows.run.demo_models import dropped_rule_notes, with_demo_defaults, with_demo_models
from pairmill.flows.run.model_size import ModelSize
from pairmill.ops.models.model_digest import resolve
from pairmill.ops.models.model_error import ModelError
from pairmill.ops.pair.class_names import class_names
from pairmill.tasks.run.place.placement import Placement, SmallRounds

ROOT = Path(__file__).resolve().parents[2]
RECIPES = ROOT / "flows" / "recipes"
TAKEN = ("seed", "ingest", "fetch", "decoding")  # of another recipe, by `recaption`


def _network(text: str) -> str:
    """Validate a network in CIDR notation."""
    ip_network(text)
    return text


Network = Annotated[str, AfterValidator(_network)]
Limit = Annotated[float, Field(ge=0, allow_inf_nan=False)]
WeekOfMinutes = Annotated[float, Field(ge=0, le=7 * 24 * 60)]


class Compute(BaseModel):
    """Settings of where a run works and when it stops; none changes the dataset of a completed run."""

    model_config = ConfigDict(extra="forbid")

    workers: int = Field(
        0, ge=0, le=10_000, description="Worker processes on CPUs; 0 means as many as there is room for."
    )
    ray_address: str = Field(
        "",
        description="Empty works on this machine without Ray. 'local' starts Ray here; HOST:6379 or 'auto' is a "
        "cluster. All steps then run on Ray Data, small or not.",
    )
    small_rounds: SmallRounds = Field(
        "ray",
        description="Where rounds of little work run when there is Ray: 'pool' is processes of this machine, which "
        "start in seconds; beside a cluster it must reach all sources and models.",
    )
    models: dict[str, ModelSize] = Field(
        {}, description="Sizes by the recipe's name of a model: {clip: {gpus: 0.25, replicas: [1, 8], feeders: 4}}."
    )
    max_cost: Limit = Field(
        0.0, description="What a run may spend on generated texts, by its models' prices; 0 is any sum."
    )
    max_hours: Limit = Field(0.0, description="Hours after which the run stops, at a commit; 0 is any time.")
    max_gpu_hours: Limit = Field(
        0.0,
        description="Hours of work on GPUs, times a worker's GPUs, after which the run stops, at a commit; 0 is any.",
    )
    max_rows: int = Field(
        0, ge=0, description="Rows over all tables after which the run stops, at a commit; 0 is any number."
    )
    max_gigabytes: Limit = Field(
        0.0, description="Gigabytes written to the lake after which the run stops, at a commit; 0 is any."
    )
    quarantine_alert: float = Field(
        0.1, ge=0, le=1, description="Share of what a run reads that may be in quarantine without an alert in Prefect."
    )
    stall_minutes: WeekOfMinutes = Field(
        60.0,
        description="Minutes in which a stage finishes no row before its workers are ended and their items done again; "
        "the third time it fails. 0 is never.",
    )
    wait_minutes: WeekOfMinutes = Field(
        0.0, description="Minutes to wait while another run writes to the lake; then this run is refused."
    )
    allow_addresses: list[Network] = Field(
        [], description="Networks (CIDR) that a fetch may contact although they are not public: 10.1.0.0/16."
    )

    allow_empty: bool = Field(
        False, description="Publish a version without a pair too. Without it such a run fails, and publishes nothing."
    )

    @model_validator(mode="after")
    def _costs_need_prices(self) -> Self:
        """Validate that a cost limit comes with a price."""
        if self.max_cost and not any(size.prompt_price or size.answer_price for size in self.models.values()):
            raise ValueError(
                "max_cost (--max-cost) needs prices: name what a million tokens of a model cost, such as --model "
                "captioner:prompt_price=0.15,answer_price=0.6"
            )
        return self

    @model_validator(mode="after")
    def _accelerators_need_a_cluster(self) -> Self:
        """Validate that accelerators are chosen on a Ray cluster: a single machine has the GPUs that it has."""
        chosen = [name for name, size in self.models.items() if size.accelerator]
        if chosen and self.ray_address in ("", "local"):
            raise ValueError(
                f"accelerator of '{chosen[0]}' chooses among a Ray cluster's machines, and this run has none; name the "
                "cluster (--ray, or compute.ray_address in Prefect), or leave accelerator out"
            )
        return self

    def limits(self) -> dict[str, float]:
        """Return the limits of a run by the names of `Spending`."""
        return {name: getattr(self, f"max_{name}") for name in ("hours", "gpu_hours", "rows", "gigabytes")}

    def placement(self) -> Placement:
        """Return these settings as a `Placement`."""
        models = {name: size.pool() for name, size in self.models.items()}
        return Placement(self.workers, self.ray_address, models, self.small_rounds, self.stall_minutes)


def default_lake() -> str:
    """Return the lake's default location: the variable ``PAIRMILL_LAKE``, else ``lake`` in the working directory."""
    return os.environ.get("PAIRMILL_LAKE") or "lake"


def load_recipe(name_or_path: str, overrides: dict[str, str] | None = None, demo_models: str = "") -> Recipe:
    """Load a recipe by name or path, apply ``overrides`` by dotted key, and resolve the paths of its models.

    ``demo_models`` 'demo' first replaces the models and their settings by the small shipped ones. Raises BadRecipe.
    """
    if demo_models == "demo":
        full, demo = load(name_or_path, None, RECIPES), load("demo", None, RECIPES)
        found = with_demo_defaults(apply_overrides(with_demo_models(full, demo), overrides or {}))
    else:
        found = load(name_or_path, overrides, RECIPES)
    return with_resolved_paths(found)


def load_runnable(name_or_path: str, overrides: dict[str, str], demo_models: str) -> tuple[Recipe, list[str]]:
    """Load a recipe as `load_recipe`, without the rules that a run here cannot apply; return it with notes on them.

    A re-cut needs no parser, and `doctor` names a missing one: both load the whole recipe. Raises BadRecipe.
    """
    full = load_recipe(name_or_path, overrides, demo_models)
    notes = dropped_rule_notes(load(name_or_path, overrides, RECIPES), full) if demo_models == "demo" else []
    recipe, left_out = without_parser(full, overrides)
    return recipe, left_out + notes


def without_parser(recipe: Recipe, overrides: dict[str, str]) -> tuple[Recipe, list[str]]:
    """Return the recipe without what needs its parser if that is not installed, and a note with the remedy, else [].

    A parser and rules that are set by ``overrides`` stay: the run refuses them.
    """
    spec = recipe.models.get("parser", "")
    if not spec or not overrides.keys().isdisjoint(("models", "models.parser", "sentences")):
        return recipe, []
    try:
        if spec.removeprefix("spacy:").isidentifier():
            resolve(spec)
        return recipe, []
    except ModelError as error:
        missing = str(error).partition(", or ")[0]
    parsed = {name for score in declared() if score.model == "parser" for name in score.rule_columns}
    by_hand = {key.split(".")[1] for key in overrides if key.startswith("sentences.")}
    reads = {rule.name: columns_of(rule.name, rule.predicate) for rule in recipe.sentences if rule.name not in by_hand}
    kept = [rule for rule in recipe.sentences if parsed.isdisjoint(reads.get(rule.name, ()))]
    left = [f"the rule '{rule.name}'" for rule in recipe.sentences if rule not in kept]
    tags = recipe.tags
    if tags and tags.mined:
        left, tags = [*left, "mined tags"], tags.model_copy(update={"mined": 0})
    if not left:
        return recipe, []
    return recipe.model_copy(update={"sentences": kept, "tags": tags}), [f"left out: {', '.join(left)}: {missing}."]


def captions_recipe(recipe: Recipe, changed: Iterable[str] = ()) -> Recipe:
    """Return the recipe `captions`; of another ``recipe`` it takes the first captioner and the settings TAKEN.

    ``changed``: the dotted keys that a user has set. Raises BadRecipe for another recipe without a captioner, and if
    one of the keys has no effect.
    """
    captions = load("captions", None, RECIPES)
    if recipe.name == captions.name:
        return recipe
    if lost := [key for key in changed if key.partition(".")[0] not in (*TAKEN, "models", "captioners")]:
        raise BadRecipe(
            f"--set {lost[0]}: the recipe `captions` takes only the first captioner of '{recipe.name}', its model, and "
            f"{', '.join(TAKEN)}; leave this out, or `pairmill run {recipe.name}`"
        )
    if not recipe.captioners:
        raise BadRecipe(f"recipe '{recipe.name}' has no captioner; add one to `captioners`, or name another recipe.")
    first = recipe.captioners[0]
    taken = {name: getattr(recipe, name) for name in TAKEN}
    taken |= {"models": {first.model: recipe.models[first.model]}, "captioners": [first]}
    return captions.model_copy(update=taken)


def with_resolved_paths(recipe: Recipe) -> Recipe:
    """Return the recipe with absolute model folders, and with its word lists read from their files.

    Relative paths may start at the repository. Raises BadRecipe for a word list that is missing or not valid.
    """
    update: dict = {"models": {name: _resolve_model(spec) for name, spec in recipe.models.items()}}
    if recipe.tags is not None and isinstance(recipe.tags.vocabulary, str):
        words = class_names(recipe.tags.vocabulary) or _read_lines(
            recipe.tags.vocabulary, "tags: there is no vocabulary file", "write one word or phrase per line"
        )
        try:
            update["tags"] = recipe.tags.model_copy(update={"vocabulary": check_vocabulary(words)})
        except ValueError as error:
            raise BadRecipe(f"tags: the vocabulary '{recipe.tags.vocabulary}' {error}") from None
    if recipe.fetch is not None and isinstance(recipe.fetch.banned, str):
        hosts = _read_lines(recipe.fetch.banned, "fetch.banned: there is no file", "write one host or address per line")
        update["fetch"] = recipe.fetch.model_copy(update={"banned": hosts})
    return recipe.model_copy(update=update)


def _read_lines(file: str, trouble: str, remedy: str) -> list[str]:
    """Read a file relative to the working folder or the repository. BadRecipe with ``trouble`` and ``remedy``."""
    try:
        path = next((path for path in (Path(file), ROOT / file) if path.is_file()), None)
        text = path.read_text(encoding="utf-8") if path else None
    except (OSError, ValueError) as error:
        raise BadRecipe(f"{trouble} {ascii(file)[:200]} that can be read ({error}); {remedy}, or list them") from error
    if text is None:
        raise BadRecipe(f"{trouble} '{file}'; {remedy}, or list them")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _resolve_model(spec: str) -> str:
    """Make a model spec's folder absolute if it lies in the repository."""
    for prefix in ("open_clip:local-dir:", "hf:", "spacy:"):
        folder = spec.removeprefix(prefix)
        if spec.startswith(prefix) and not Path(folder).exists() and (ROOT / folder).is_dir():
            return f"{prefix}{ROOT / folder}"
    return spec


def resolve_source(uri: str) -> str:
    """Make a source's path absolute if it only exists relative to the repository, as the demo's does."""
    from pairmill.ops.read.source import split_format  # pyarrow and the readers of all formats: 0.3 s

    _, place = split_format(uri)
    if "://" in place or Path(place).exists() or not (ROOT / place).exists():
        return uri
    return uri.removesuffix(place) + str(ROOT / place)
