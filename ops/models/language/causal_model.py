"""Load a causal language model of transformers with its tokenizer, and reject models of other kinds."""

from typing import Any

import torch

from pairmill.ops.models.device.device import exact_inference, load_transformers, placed
from pairmill.ops.models.device.failures import first_line
from pairmill.ops.models.model_digest import ModelError, transformers_folder


def load_causal(spec: str, kind: torch.dtype, example: str) -> tuple[Any, Any]:
    """Load the model of ``spec`` onto the device with weights as ``kind``; return (model, tokenizer).

    Raises ModelError if it is missing, damaged, incomplete or no causal language model; the message names ``example``
    as one that works.
    """
    folder = transformers_folder(spec, "language models")
    try:
        model, tokenizer, missing = load_transformers(folder, "AutoModelForCausalLM", "AutoTokenizer", kind)
    except Exception as error:  # a config of another model kind, a missing tokenizer, damaged weights
        raise ModelError(
            f"model '{spec}' does not load as a causal language model: {first_line(error)}; check its config, "
            f"tokenizer and weights, or name one such as {example}"
        ) from error
    model = placed(model, spec)
    if why := _why_not_causal(model, tokenizer, missing):
        raise ModelError(f"model '{spec}' is no causal language model: {why}; name one such as {example}")
    return model, tokenizer


def _why_not_causal(model: Any, tokenizer: Any, missing: set[str]) -> str:
    """Return why the loaded model cannot be used as a causal language model; '' if it can."""
    known = model.get_input_embeddings().num_embeddings
    if len(tokenizer) > known:
        return f"its tokenizer has {len(tokenizer)} tokens, its weights {known}; they are not of one model"
    if missing:
        return f"its weights lack {min(missing)}"
    return "" if _is_causal(model) else "what it says of a token depends on the tokens behind it"


def _is_causal(model: Any) -> bool:
    """Return whether a token's logits are independent of the tokens after it, by a trial on 3 tokens."""
    ids = torch.tensor([[0, 0, 0], [0, 0, 1]])
    with exact_inference():
        first, second = model(input_ids=ids.to(model.device), use_cache=False).logits[:, :2].float()
    room = max(1e-4, 4 * torch.finfo(model.dtype).eps)  # two rounding steps of bf16; a bidirectional model is far off
    return torch.allclose(first, second, rtol=room, atol=room)
