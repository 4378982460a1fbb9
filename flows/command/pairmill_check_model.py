"""Implement `pairmill check-model`: load a captioner, and print what a run of it would cost and do."""

from argparse import Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pairmill.catalog.lake.yaml_text import parsed
from pairmill.catalog.recipe.parts_of_texts import Pictures
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.command.terminal import console, shown

if TYPE_CHECKING:
    from pairmill.ops.models.vision_language.model_check import ModelCheck

CARD = 80e9  # bytes of an A100's or H100's memory


def check_model(args: Namespace) -> int:
    """Load the model, try it, and print one line a finding."""
    screen = console()
    pictures = _pictures(args.processor)
    spec = args.spec if ":" in args.spec else f"hf:{args.spec}"
    with screen.status(f"loading {shown(spec)}"):
        from pairmill.ops.models.backends import require_images
        from pairmill.ops.models.vision_language.model_check import check_model as check  # torch, 3 s

        if not spec.startswith("hf:"):
            raise PairmillError(f"'{spec}' is no captioner that runs here; name a vision-language model as hf:NAME")
        require_images(args.spec, spec)
        found = check(spec, args.precision, pictures, args.side)
    for line in _lines(found, args.precision, args.max_tokens):
        screen.print(shown(line))
    return 0


def _pictures(text: str) -> tuple[tuple[str, int], ...]:
    """Parse picture settings as a recipe has them: '{tiles: 1}'. Raises PairmillError."""
    try:
        return tuple(sorted(Pictures.model_validate(parsed(text) or {}).model_dump().items()))
    except (ValueError, ValidationError):
        names = ", ".join(Pictures.model_fields)
        raise PairmillError(f"--processor '{text}': write '{{tiles: 1}}', with settings of {names}") from None


def _lines(found: "ModelCheck", precision: str, max_tokens: int) -> Iterator[str]:
    """Format the findings."""
    yield f"loads     {found.architecture}, {found.weights / 1e9:,.2f} GB of weights in {precision}"
    tokens = ", ".join(f"{n:,} of {width} x {height}" for (height, width), n in found.tokens.items())
    yield f"pictures  tokens a picture: {tokens}"
    yield f"prepares  {found.milliseconds:,.1f} ms of a CPU and {found.input_bytes / 1e6:,.2f} MB a picture"
    yield f"batches   {found.alike} of 4 answers in a batch are those one by one"
    if found.not_captured:
        yield f"decoding  step by step: {found.not_captured}"
    else:
        yield "decoding  captured on a GPU in bf16: on a trial its answers are those of generate"
    if found.token_bytes:
        row = found.token_bytes * (sorted(found.tokens.values())[1] + 40 + max_tokens)
        room = max(0.0, 0.9 * CARD - found.weights) / row
        beside = f"{room:,.0f} rows beside the weights in 80 GB"
        yield f"memory    {row / 1e6:,.2f} MB a row with {max_tokens} tokens of answer: {beside}"
