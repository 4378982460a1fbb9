"""Choose the backend of a generative model by the prefix of its spec, as catalog/terms/backend.py declares it."""

from __future__ import annotations

from pairmill.catalog.terms.backend import Backend, backend_of
from pairmill.ops.models.backend_function import backend_function
from pairmill.ops.models.generation import Answering
from pairmill.ops.models.http.http_model import HttpModel
from pairmill.ops.models.language.language_model import LanguageModel
from pairmill.ops.models.model_error import ModelError
from pairmill.ops.models.vision_language.kind_of_model import is_vision_language
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel


def vision_backend(spec: str, precision: str, batch_size: int, encoding: str) -> Answering:
    """Return the backend of vision-language model ``spec``.

    Args:
        spec: Model spec, 'hf:…' or 'http:…', or with the prefix of another declared backend.
        precision: 'fp32' or 'bf16'; read by models in this process only.
        batch_size: Rows per batch; read by models in this process only.
        encoding: How images are encoded in requests, 'png' or 'jpeg-QUALITY'; read by models behind a server only.
    """
    return backend_function(_backend(spec), "captioner")(spec, precision, batch_size, encoding)


def fusion_backend(spec: str, precision: str, batch_size: int) -> Answering:
    """Return the backend of the model ``spec`` that fuses texts.

    The config of an 'hf:' model decides whether its prompts include the image. An 'http:' model gets text only.
    """
    backend = _backend(spec)
    if not backend.fuser:
        raise ModelError(f"model '{spec}': models of '{backend.prefix}' fuse no texts; name another in `fuse.model`")
    return backend_function(backend, "fuser")(spec, precision, batch_size)


def accepts_images(spec: str) -> bool:
    """Return whether a generative model accepts images. Raises ModelError for a missing model or unknown prefix."""
    backend = _backend(spec)
    return not backend.sees or bool(backend_function(backend, "sees")(spec))


def hf_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> VisionLanguageModel:
    """Return a vision-language model that runs in this process; it needs no ``encoding``."""
    return VisionLanguageModel(spec, precision, batch_size)


def hf_fuser(spec: str, precision: str, batch_size: int) -> VisionLanguageModel | LanguageModel:
    """Return a model that runs in this process, with images if its config has any."""
    return (VisionLanguageModel if is_vision_language(spec) else LanguageModel)(spec, precision, batch_size)


def http_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> HttpModel:
    """Return a model behind endpoints, whose servers choose precision and batches."""
    return HttpModel(spec, encoding)


def http_fuser(spec: str, precision: str, batch_size: int) -> HttpModel:
    """Return a model behind endpoints that gets text only."""
    return HttpModel(spec)


def _backend(spec: str) -> Backend:
    """Return the declared backend of ``spec``. Raises ModelError for an unknown prefix."""
    if (found := backend_of(spec)) is None:
        raise ModelError(
            f"model '{spec}': this kind of model generates no text; write 'hf:NAME_OR_FOLDER', or "
            "'http:NAME@https://host/v1'"
        )
    return found
