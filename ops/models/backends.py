"""Choose the backend of a generative model by the prefix of its spec, as catalog/terms/backend.py declares it."""

import importlib
from collections.abc import Callable
from functools import cache
from typing import Any

from pairmill.catalog.terms.backend import Backend, backend_of, forms
from pairmill.ops.models.generation import Answering
from pairmill.ops.models.language.language_model import LanguageModel
from pairmill.ops.models.model_digest import is_vision_language, model_digest
from pairmill.ops.models.model_error import ModelError
from pairmill.ops.models.vision_language.vlm import VisionLanguageModel


def vision_backend(spec: str, precision: str, batch_size: int, encoding: str) -> Answering:
    """Return the vision-language model of ``spec``: 'hf:…', 'http:…', or of another declared prefix.

    ``precision`` ('fp32', 'bf16') and ``batch_size`` are read by models in this process only, ``encoding`` of images in
    requests ('png', 'jpeg-QUALITY') by models behind a server only.
    """
    return _function(_backend(spec), "captioner")(spec, precision, batch_size, encoding)


def fusion_backend(spec: str, precision: str, batch_size: int) -> Answering:
    """Return the model of ``spec`` that fuses texts. Raises ModelError if its backend has no such models.

    The config of an 'hf:' model decides whether its prompts include the image. An 'http:' model gets text only.
    """
    backend = _backend(spec)
    if not backend.fuser:
        raise ModelError(f"model '{spec}': models of '{backend.prefix}' fuse no texts; name another in `fuse.model`")
    return _function(backend, "fuser")(spec, precision, batch_size)


def require_images(captioner: str, spec: str) -> None:
    """Raise ModelError unless the model ``spec`` of a captioner exists and accepts images."""
    backend = _backend(spec)
    if backend.sees and not _function(backend, "sees")(spec):
        raise ModelError(
            f"captioner '{captioner}': model '{spec}' works on text alone; name a vision-language model such as "
            "hf:HuggingFaceTB/SmolVLM2-2.2B-Instruct"
        )


def hf_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> VisionLanguageModel:
    """Return a transformers vision-language model; ``encoding`` is ignored, since images are not sent to a server."""
    return VisionLanguageModel(spec, precision, batch_size)


def hf_fuser(spec: str, precision: str, batch_size: int) -> VisionLanguageModel | LanguageModel:
    """Return a transformers model that fuses texts; it sees the image too if its config says that it accepts images."""
    return (VisionLanguageModel if is_vision_language(spec) else LanguageModel)(spec, precision, batch_size)


@cache
def content_digest(spec: str) -> str:
    """Return the identity of any model's content, 32 hex digits; computed once per process.

    It is the digest that the model's backend declares, such as a hash of the name of a model behind endpoints, else the
    digest of the model's files. Raises ModelError if the model is not found.
    """
    if (backend := backend_of(spec)) and backend.digest:
        return str(_function(backend, "digest")(spec))
    return model_digest(spec)


def _function(backend: Backend, field: str) -> Callable[..., Any]:
    """Import the function that the field of a declaration names ('captioner', 'digest' …). Raises ModelError."""
    value: str = getattr(backend, field)
    module, _, name = value.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(
            f"package '{backend.package}', backend '{backend.prefix}': its {field} {value} cannot be imported: "
            f"{error}. Update or uninstall the package."
        ) from error


def _backend(spec: str) -> Backend:
    """Return the declared backend of ``spec``. Raises ModelError for an unknown prefix."""
    if (found := backend_of(spec)) is None:
        raise ModelError(f"model '{spec}': this kind of model generates no text; write {forms()}")
    return found
