"""Choose the backend of a generative model by its spec: 'hf:' runs in the process, 'http:' is asked of a server."""

from __future__ import annotations

from pairmill.ops.models.generation import Answering
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.models.http.http_spec import PREFIX
from pairmill.ops.models.language.language_model import LanguageModel
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel


def vision_backend(spec: str, precision: str, batch_size: int, encoding: str) -> VisionLanguageModel | HttpModel:
    """Make the model ``spec`` that is shown pictures. ``precision`` and ``batch_size`` are of one that runs here,
    ``encoding`` says how pictures are sent to one that does not."""
    return HttpModel(spec, encoding) if spec.startswith(PREFIX) else VisionLanguageModel(spec, precision, batch_size)


def fusion_backend(spec: str, precision: str, batch_size: int) -> VisionLanguageModel | LanguageModel | HttpModel:
    """Make the model ``spec`` that fuses texts: by its own config it is shown the picture as well, or not. One behind
    a server is not: it is sent texts alone."""
    if spec.startswith(PREFIX):
        return HttpModel(spec)
    return (VisionLanguageModel if is_vision_language(spec) else LanguageModel)(spec, precision, batch_size)


def answer_settings(model: Answering) -> tuple[str, ...]:
    """Name the settings of a recipe that the answers of this backend depend on, beside prompt, tokens and side."""
    return ("encoding",) if isinstance(model, HttpModel) else ("precision",)
