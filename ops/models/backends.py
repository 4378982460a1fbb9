"""Choose the backend of a generative model by its spec: 'hf:' runs in this process, 'http:' calls a server."""

from __future__ import annotations

from pairmill.ops.models.generation import Answering
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.models.http.http_spec import PREFIX
from pairmill.ops.models.language.language_model import LanguageModel
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel


def vision_backend(spec: str, precision: str, batch_size: int, encoding: str) -> VisionLanguageModel | HttpModel:
    """Return the backend of vision-language model ``spec``.

    Args:
        spec: Model spec, 'hf:…' or 'http:…'.
        precision: 'fp32' or 'bf16'; read by models in this process only.
        batch_size: Rows per batch; read by models in this process only.
        encoding: How images are encoded in requests, 'png' or 'jpeg-QUALITY'; read by models behind a server only.
    """
    return HttpModel(spec, encoding) if spec.startswith(PREFIX) else VisionLanguageModel(spec, precision, batch_size)


def fusion_backend(spec: str, precision: str, batch_size: int) -> VisionLanguageModel | LanguageModel | HttpModel:
    """Return the backend of the model ``spec`` that fuses texts.

    The config of an 'hf:' model decides whether its prompts include the image. An 'http:' model gets text only.
    """
    if spec.startswith(PREFIX):
        return HttpModel(spec)
    return (VisionLanguageModel if is_vision_language(spec) else LanguageModel)(spec, precision, batch_size)


def answer_settings(model: Answering) -> tuple[str, ...]:
    """Return the recipe settings that change this backend's answers, besides prompt, token limit and image side."""
    return ("encoding",) if isinstance(model, HttpModel) else ("precision",)
