"""List the checks of `pairmill doctor`, in order; each imports its modules when it is called."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pairmill.flows.doctor.installation import credentials, extras, imports, packages, python_version, server_state
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.machine.gpu_state import gpus
from pairmill.flows.machine.recipe_models import is_here, recipe_models
from pairmill.flows.machine.space import disk, memory
from pairmill.ops.models.backends import require_images
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.vision_language.model_check import ModelCheck

CARD = 80e9  # bytes of an A100's or H100's memory
ROWS = 4  # of a model check
PROMPT_TOKENS = 40


def lake_state(patient: Patient) -> Iterator[Finding]:
    """Open the lake for reading; yield findings on its format, its catalog's seal, and its writing process."""
    from pairmill.catalog.lake import schema, seal
    from pairmill.catalog.lake.lease_row import holder_of
    from pairmill.catalog.lake.location import locate
    from pairmill.catalog.lake.new_lake import check_new_place
    from pairmill.catalog.lake.opening import create_or_open
    from pairmill.flows.api.opened_lake import OpenLake

    location = locate(patient.lake)
    if not location.on_postgres and not Path(location.metadata).is_file():
        check_new_place(location)
        yield Finding("ok", f"none at '{patient.lake}' yet; the first run makes it")
        return
    with create_or_open(patient.lake, read_only=True) as lake:
        version, holder = schema.version(lake), holder_of(lake.metadata)
        images = OpenLake(lake).status().rows["images"]
        yield Finding("ok", f"'{patient.lake}' opens: {images:,} images")
    what = f"format {version.format}, schema {version.migrations}"
    if version.migrations == schema.NEWEST:
        yield Finding("ok", f"{what}, the newest")
    else:
        yield Finding("warn", f"{what} of {schema.NEWEST}", "the next run migrates it; copy the lake before")
    if not location.on_postgres:
        if seal.is_sealed(location):
            yield Finding("ok", "its catalog is sealed and as it was last written")
        elif holder is None or holder.is_dead():
            yield Finding("warn", "its catalog has no seal: the last run was killed", "the next run seals it")
    if holder is None:
        yield Finding("ok", "nobody writes to it")
    elif holder.is_dead():
        yield Finding("ok", f"its writer has died ({holder}); the next run takes over")
    else:
        yield Finding("ok", f"is written by {holder}; a second run waits for it")


def captioner_costs(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each captioner whose model is on this machine: load it, and measure ROWS pictures."""
    for captioner in patient.recipe.captioners if patient.recipe else ():
        assert patient.recipe is not None
        spec = patient.recipe.models[captioner.model]
        if not spec.startswith("hf:") or not is_here(spec):
            continue
        from pairmill.ops.models.vision_language.model_check import check_model  # torch, 3 s

        pictures = tuple(sorted(captioner.processor.model_dump().items()))
        try:
            require_images(captioner.model, spec)
            found = check_model(spec, captioner.precision, pictures, captioner.side)
        except ModelError as error:
            yield Finding("fail", f"{captioner.name}: {error}")
        else:
            state = "ok" if found.alike == ROWS else "warn"
            yield Finding(state, f"{captioner.name}: {_costs(found, captioner.precision, captioner.max_tokens)}")


def _costs(found: "ModelCheck", precision: str, max_tokens: int) -> str:
    """Format the measurements of a model check as one line."""
    tokens = ", ".join(f"{n:,} of {width} x {height}" for (height, width), n in found.tokens.items())
    why = found.not_captured
    parts = [
        f"{found.architecture}, {found.weights / 1e9:,.2f} GB of weights in {precision}",
        f"tokens a picture: {tokens}",
        f"{found.milliseconds:,.1f} ms of a CPU and {found.input_bytes / 1e6:,.2f} MB to prepare one",
        f"{found.alike} of {ROWS} answers in a batch are those one by one",
        f"decodes step by step: {why}" if why else "decoding is captured on a GPU in bf16",
    ]
    if found.token_bytes:
        row = found.token_bytes * (sorted(found.tokens.values())[1] + PROMPT_TOKENS + max_tokens)
        room = max(0.0, 0.9 * CARD - found.weights) / row
        parts.append(f"{row / 1e6:,.2f} MB a row with {max_tokens} tokens of answer, {room:,.0f} rows in 80 GB")
    return "; ".join(parts)


EXAMINATIONS = {
    "python": python_version, "packages": packages, "extras": extras, "imports": imports, "devices": gpus,
    "memory": memory, "disk": disk, "credentials": credentials, "lake": lake_state, "prefect": server_state,
    "models": recipe_models, "captioners": captioner_costs,  # the slowest: it loads them
}  # fmt: skip
