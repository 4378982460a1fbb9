"""Load the captioners of a recipe that are on this machine, and measure their tokens, memory and decoding."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.machine.recipe_models import is_here
from pairmill.ops.models.backends import require_images
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    from pairmill.ops.models.vision_language.model_check import ModelCheck

CARD = 80e9  # bytes of an A100's or H100's memory
ROWS = 4  # of a model check
PROMPT_TOKENS = 40


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


def _costs(found: ModelCheck, precision: str, max_tokens: int) -> str:
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
