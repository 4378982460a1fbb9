"""Create the models of 'hf:' specs, which run in this process by transformers."""

from __future__ import annotations

from pairmill.ops.models.language.language_model import LanguageModel
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel


def hf_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> VisionLanguageModel:
    """Return a vision-language model; it needs no ``encoding``, because its images are not sent to a server."""
    return VisionLanguageModel(spec, precision, batch_size)


def hf_fuser(spec: str, precision: str, batch_size: int) -> VisionLanguageModel | LanguageModel:
    """Return a model that fuses texts, and sees the image too if its config says that it accepts images."""
    return (VisionLanguageModel if is_vision_language(spec) else LanguageModel)(spec, precision, batch_size)
