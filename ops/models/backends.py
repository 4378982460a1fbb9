"""Choose the backend of a generative model by its spec's prefix (catalog/terms/backend.py), and define those of hf."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairmill.catalog.terms.backend import Backend, backend_of, forms
from pairmill.ops.models.device.batch_size import noise
from pairmill.ops.models.generate.local_model import LocalModel
from pairmill.ops.models.generation import Answering
from pairmill.ops.models.model_digest import is_vision_language, model_digest
from pairmill.ops.models.model_error import ModelError


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


def hf_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> "VisionLanguageModel":
    """Return a transformers vision-language model; ``encoding`` is ignored, since images are not sent to a server."""
    return VisionLanguageModel(spec, precision, batch_size)


def hf_fuser(spec: str, precision: str, batch_size: int) -> "VisionLanguageModel | LanguageModel":
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


if TYPE_CHECKING:
    from pairmill.ops.models.generate.loaded_model import Prepared
    from pairmill.ops.models.language.language_model_loaded import LoadedGenerator
    from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm


@dataclass(frozen=True)
class LanguageModel(LocalModel):
    """Answer prompts without images, greedily, by a causal language model of transformers.

    There is no temperature, no beam search and no penalty, whatever the model's generation_config.json sets for chats.
    The prompt is the user's turn of the model's chat template; a model without a template continues the bare prompt.
    Special tokens that a prompt spells ("<|im_end|>") are encoded as text. A prompt that leaves no room for
    ``max_tokens`` in the model's context (at most 8,192 tokens) gets the error 'too_large'; a prompt without a token
    gets an empty answer. `infer` raises ModelError if ``max_tokens`` fills the whole context.
    """

    batch_size: int = 16

    answer_settings: ClassVar[tuple[str, ...]] = ("precision",)
    shows_images: ClassVar[bool] = False

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches: by cost on a GPU, by similar length on a CPU."""
        return self._loaded().batches(prompts, self.batch_size, self.room) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> "Prepared":
        """Tokenize the prompts of one batch on the CPU; ``pictures`` are ignored."""
        return self._loaded().prepare(prompts)

    def _loaded(self) -> "LoadedGenerator":
        """Return the model in this process, loaded on first use."""
        from pairmill.ops.models.language.language_model_loaded import load  # imports torch

        return load(self.spec, self.precision)


@dataclass(frozen=True)
class VisionLanguageModel(LocalModel):
    """Answer prompts about images, greedily, by a vision-language model of transformers.

    ``processor`` has (name, value) pairs of picture settings (`with_picture_settings`), which change answers.
    """

    processor: tuple[tuple[str, int], ...] = ()

    answer_settings: ClassVar[tuple[str, ...]] = ("precision", "processor")
    shows_images: ClassVar[bool] = True

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches: by cost on a GPU, by similar length on a CPU.

        ``sizes`` are the images' (height, width), None for a row without an image. Such a row never shares a batch with
        a row that has an image. Without ``sizes``, every row has an image, all of one size.
        """
        return self._loaded().batches(prompts, sizes, self.batch_size, self.room) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> "Prepared":
        """Build the inputs of one batch on the CPU. Either every row has an image, or none has."""
        return self._loaded().prepare(pictures, prompts)

    def _trial(self, side: int) -> tuple[str, np.ndarray | None]:
        """Return the settings that change how fast batches are, in words, and an image of noise."""
        settings = "".join(f" {name} {value}" for name, value in self.processor)
        return f"{self.precision} {side} px{settings}", noise(side, side * 4 // 3)

    def _loaded(self) -> "LoadedVlm":
        """Return the model in this process, loaded on first use."""
        from pairmill.ops.models.vision_language.vlm_loaded import load  # imports torch

        return load(self.spec, self.precision, self.processor)
