"""Define the resources of each model of a run: GPUs, replicas, feeders, keys, prices. They do not change a dataset."""

import re
from difflib import get_close_matches
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.backend import backend_of
from pairmill.catalog.terms.error import PairmillError, did_you_mean
from pairmill.tasks.run.place.placement import ModelPool, Prices

MOST_REPLICAS, MOST_FEEDERS, MOST_CONNECTIONS = 10_000, 64, 4096
DECIMALS, LEAST_PART = 4, 0.01  # of a GPU, in Ray; less than 1 % of 80 GB holds no model
# A process works on one card, or on a part of it.
PartOfACard = Annotated[float, Field(ge=0, le=1)]
Replicas = Annotated[int, Field(ge=1, le=MOST_REPLICAS)]
KIND = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")  # of a GPU: a label's value in Ray
AN_EXAMPLE = "clip:gpus=0.25,replicas=1-8,feeders=4"


class ModelSize(BaseModel):
    """Resources of each process of a model, the number of processes, and settings of its endpoints."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    gpus: PartOfACard | None = Field(
        None,
        description="GPUs per process: 0.25 for a quarter of one, or 1; 0 for the CPU alone. Empty: one, if there is "
        "any.",
    )
    replicas: Replicas | Annotated[list[Replicas], Field(min_length=2, max_length=2)] | None = Field(
        None, description="Number of processes: a number, or [least, most]. Empty: as many as fit."
    )
    feeders: Annotated[int, Field(ge=0, le=MOST_FEEDERS)] | None = Field(
        None,
        description="Threads that prepare batches for each process. Empty: derived from the number of CPUs per GPU.",
    )
    accelerator: str = Field(
        "",
        description="Kind of GPU on a Ray cluster, as Ray names it: H100. Empty: any. If no machine has one, the run "
        "ends with a line that names each machine's kinds.",
    )
    key: Annotated[str, Field(pattern=r"^([A-Za-z_][A-Za-z0-9_]{0,99})?$")] = Field(
        "", description="For a model behind endpoints: name of the workers' environment variable that holds the key."
    )
    connections: Annotated[int, Field(ge=1, le=MOST_CONNECTIONS)] = Field(
        256, description="Most requests at the same time to each endpoint; fewer are used if more are not faster."
    )
    prompt_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="Price of a million prompt tokens, in any one currency."
    )
    answer_price: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        0.0, description="Price of a million answer tokens, in the same currency."
    )

    @field_validator("gpus", mode="before")
    @classmethod
    def _of_one_card_or_whole(cls, gpus: Any) -> Any:
        """Validate that ``gpus`` is one card or a part of it: a second one would lie idle."""
        if not isinstance(gpus, int | float):
            return gpus
        if gpus > 1 and gpus == round(gpus):
            raise ValueError(
                f"{gpus:g} cards are more than a process uses: it works on one. For several processes, give gpus=1 and "
                "replicas; for a model that needs several cards, serve it (vllm serve MODEL "
                f"--tensor-parallel-size {gpus:g}) and name it as http:NAME@http://HOST:8000/v1"
            )
        if not (gpus in (0, 1) or (LEAST_PART <= gpus < 1 and gpus == round(gpus, DECIMALS))):
            raise ValueError(
                f"{gpus!s:.20} is neither a part of one card nor a whole one; give 0, 1, or a number below 1 of at "
                f"most {DECIMALS} decimals, such as 0.25"
            )
        return gpus

    @field_validator("replicas", mode="before")
    @classmethod
    def _least_first(cls, replicas: Any) -> Any:
        """Validate that replicas are a number or an ascending pair."""
        given = replicas if isinstance(replicas, list) else [replicas]
        is_whole = bool(given) and all(isinstance(n, int) for n in given)
        if is_whole and not (len(given) <= 2 and 1 <= given[0] <= given[-1] <= MOST_REPLICAS):
            raise ValueError(f"give a number from 1 to {MOST_REPLICAS}, or the least and the most")
        return replicas

    @field_validator("accelerator")
    @classmethod
    def _is_a_kind(cls, accelerator: str) -> str:
        """Validate that ``accelerator`` can be the name of a kind of GPU in Ray."""
        if accelerator and not KIND.fullmatch(accelerator):
            raise ValueError(
                f"{accelerator[:40]!r} is no kind of GPU: give Ray's name for it, of letters, digits, '-', '_' or '.', "
                "such as H100, A100-40G or L4"
            )
        return accelerator

    @model_validator(mode="after")
    def _has_a_card(self) -> Self:
        """Refuse an ``accelerator`` (a kind of GPU) for a model that has no GPU."""
        if self.accelerator and self.gpus == 0:
            raise ValueError(f"gpus=0 keeps it on CPUs, and accelerator={self.accelerator} asks for a GPU; give one")
        return self

    def pool(self) -> ModelPool:
        """Return these settings as a `ModelPool`; replicas (0, 0) mean as many as fit."""
        least, most = self.replicas if isinstance(self.replicas, list) else (self.replicas or 0, self.replicas or 0)
        prices = Prices(self.prompt_price, self.answer_price)
        return ModelPool(self.gpus, (least, most), self.feeders, self.key, self.connections, prices, self.accelerator)


def parse_size(text: str) -> tuple[str, ModelSize]:
    """Parse ``clip:gpus=0.25,replicas=1-8`` to (name, `ModelSize`). Raises ValueError with the right form."""
    name, colon, settings = text.partition(":")
    if not (name and colon and settings):
        raise ValueError(f"'{text}' does not say a model's size; write it as {AN_EXAMPLE}")
    given: dict[str, Any] = {}
    for setting in settings.split(","):
        key, equals, value = (part.strip() for part in setting.partition("="))
        if key not in ModelSize.model_fields or not equals:
            near = get_close_matches(key, ModelSize.model_fields, n=1)
            remedy = f"did you mean '{near[0]}'?" if near and key != near[0] else f"write it as {AN_EXAMPLE}"
            raise ValueError(
                f"'{setting}' is no setting of a model; {remedy} (there are {', '.join(ModelSize.model_fields)})"
            )
        if key in given:
            raise ValueError(f"'{key}' is given twice for '{name}'; give it once: {AN_EXAMPLE}")
        given[key] = _read(key, value)
    try:
        return name, ModelSize.model_validate(given)
    except ValidationError as error:
        fault = error.errors()[0]
        message = fault["msg"].removeprefix("Value error, ")
        where = f"{fault['loc'][0]} of '{name}'" if fault["loc"] else f"'{name}'"
        raise ValueError(f"{where}: {message}") from None


def check_sizes(models: dict[str, ModelSize], most: float, plan: Plan) -> None:
    """Raise PairmillError if ``models`` names a model that neither the recipe nor one of its scores uses.

    Raise it also if ``most``, the limit of cost, is above 0 and a model behind endpoints has no price.
    """
    recipe = plan.recipe
    known = list(dict.fromkeys([*recipe.models, *(score.model for score in plan.scores if score.model)]))
    for name in models:
        if name not in known:
            remedy = did_you_mean(name, known) or f"name one of {', '.join(known)}."
            raise PairmillError(f"--model (compute.models): recipe '{recipe.name}' has no model '{name}'; {remedy}")
    if not most:
        return
    fuser = [recipe.fuse.model] if recipe.fuse else []
    for name in dict.fromkeys([*(each.model for each in recipe.captioners), *fuser]):
        size = models.get(name, ModelSize.model_validate({}))
        backend = backend_of(recipe.models[name])
        if backend and backend.endpoints and not (size.prompt_price or size.answer_price):
            raise PairmillError(
                f"--max-cost (compute.max_cost) cannot hold for '{name}', whose price is not known; give the "
                f"price of a million tokens: --model {name}:prompt_price=0.15,answer_price=0.6"
            )


EXAMPLES = {"gpus": "0.25 or 1", "replicas": "4 or 1-8", "feeders": "4", "connections": "64", "prompt_price": "0.15",
            "answer_price": "0.6"}  # fmt: skip


def _read(key: str, value: str) -> str | float | int | list[int]:
    """Parse a setting: a name, a number, or 1-8 for replicas. Raises ValueError with the remedy."""
    if key in ("key", "accelerator"):
        return value
    example = EXAMPLES[key]
    parts = value.split("-") if key == "replicas" else [value]
    try:
        found = [float(part) if key in ("gpus", "prompt_price", "answer_price") else int(part) for part in parts]
    except ValueError:
        raise ValueError(f"'{value}' is no number of {key}; give {example}, such as {AN_EXAMPLE}") from None
    return found[0] if len(found) == 1 else [int(number) for number in found]
