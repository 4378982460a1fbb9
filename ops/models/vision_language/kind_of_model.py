"""Read from a model's config whether it accepts images, without importing torch."""

from __future__ import annotations

import json
from functools import cache

from pairmill.ops.models.model_digest import ModelError, resolve

# Keys that only configs of vision-language models have. By transformers' own table, which takes 1.8 CPU seconds and
# torch to import, these keys match 93 of the 97 model types that it loads for images and text, and none of the 175 that
# it loads for text alone (except causal models that also accept images).
PICTURES = frozenset({"vision_config", "vq_config", "image_token_id", "image_token_index", "image_size"})


@cache
def is_vision_language(spec: str) -> bool:
    """Return whether ``spec`` ('hf:NAME_OR_FOLDER') is a vision-language model; if not, it generates from text alone.

    Raises ModelError if the model is missing or its config cannot be read.
    """
    if not spec.startswith("hf:"):
        raise ModelError(
            f"model '{spec}': this kind of model generates no text; write 'hf:NAME_OR_FOLDER' for a model of "
            "transformers, or 'http:NAME@https://host/v1' for one behind an endpoint"
        )
    file = resolve(spec) / "config.json"
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise ModelError(f"model '{spec}': its config.json cannot be read ({error}); copy the whole model") from error
    return isinstance(config, dict) and not PICTURES.isdisjoint(config)
