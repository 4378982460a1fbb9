"""Score CLIP vectors by heads: linear layers or small MLPs in a safetensors file, such as LAION's aesthetic predictors.

A file has `weight` and `bias`, or `layers.N.weight` and `layers.N.bias`, N being a module's place in a Sequential. Its
metadata names the CLIP by content digest (`clip`), `activation` ('none' or 'relu') and `output` ('none' or 'sigmoid').
The activation stands where the numbers leave a gap, so not between `layers.15` and `layers.16`.
"""

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from pairmill.ops.batch import Batch
from pairmill.ops.models.model_digest import model_digest, vector_width
from pairmill.ops.models.model_error import ModelError

_WEIGHT = re.compile(r"(?:.*\.)?(\d+)\.weight")
_CHOICES = {"activation": ("none", "relu"), "output": ("none", "sigmoid")}
ROWS = 8192  # vectors at once: 64 MB of a hidden layer of 2,048


@dataclass(frozen=True)
class _Layers:
    """Layers (weights (out, in), biases (out,), whether a ReLU follows), float32; the last gives one number."""

    layers: tuple[tuple[np.ndarray, np.ndarray, bool], ...]
    is_sigmoid: bool
    clip: str

    def __call__(self, vectors: np.ndarray) -> np.ndarray:
        """Return the numbers float32 (n,) of vectors float32 (n, d)."""
        for weights, biases, is_rectified in self.layers:
            vectors = vectors @ weights.T + biases
            if is_rectified:
                np.maximum(vectors, 0, out=vectors)
        numbers = vectors[:, 0]
        return 1 / (1 + np.exp(-numbers)) if self.is_sigmoid else numbers


@dataclass(frozen=True)
class VectorHead:
    """Read ``image_vector`` float32 (n, d); add ``head_number``, the head's own scale. No pixel is read.

    ``model`` is the spec of the CLIP whose vectors the pictures have. Raises ModelError if ``head_file`` is no head, or
    is one of another CLIP. A linear head takes 2 µs a picture, most of it to read the vector.
    """

    head_file: str
    model: str
    version: int = 1
    content: str = field(init=False)  # digest of the file's bytes; its name does not matter

    def __post_init__(self) -> None:
        head, width, digest = self._loaded(), vector_width(self.model), model_digest(self.model)
        if head.clip != digest:
            raise ModelError(
                f"head '{self.head_file}' is for vectors of the CLIP {head.clip}, and '{self.model}' is {digest}; name "
                "that CLIP in models.clip, or a head for this one in `heads`"
            )
        if width and head.layers[0][0].shape[1] != width:
            raise ModelError(
                f"head '{self.head_file}' takes vectors of {head.layers[0][0].shape[1]} numbers, and '{self.model}' "
                f"makes {width}; name a head for this CLIP in `heads`"
            )
        object.__setattr__(self, "content", hashlib.sha256(Path(self.head_file).expanduser().read_bytes()).hexdigest())

    def _loaded(self) -> _Layers:
        """Return the layers, loaded once a process unless the file changes."""
        file = Path(self.head_file).expanduser()
        if not file.is_file():
            raise ModelError(f"head '{self.head_file}': there is no such file; correct its path in `heads`")
        stat = file.stat()
        return _load(str(file), stat.st_size, stat.st_mtime_ns)

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with the column added."""
        head, vectors = self._loaded(), np.asarray(batch["image_vector"], np.float32)
        parts = [head(vectors[first : first + ROWS]) for first in range(0, len(vectors), ROWS)]
        return batch | {"head_number": np.concatenate(parts).tolist() if parts else []}


@cache
def _load(file: str, _size: int, _mtime_ns: int) -> _Layers:
    """Read and check a head's file; fold layers without an activation between them into one. Raises ModelError."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="np") as opened:
            said, tensors = opened.metadata() or {}, {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, TypeError, AttributeError) as error:
        remedy = "convert it: pairmill convert-head FILE --clip SPEC --to NEW.safetensors"
        raise ModelError(f"head '{file}' is no safetensors file of numbers ({error}); {remedy}") from error
    for name, choices in _CHOICES.items():
        if said.get(name, "none") not in choices:
            raise ModelError(f"head '{file}': its metadata has {name} '{said[name]}'; it may be {' or '.join(choices)}")
    if not said.get("clip"):
        raise ModelError(
            f"head '{file}' does not say for which CLIP it is; convert it: pairmill convert-head '{file}' --clip SPEC "
            "--to NEW.safetensors"
        )
    matches = filter(None, map(_WEIGHT.fullmatch, tensors))
    named = {int(found[1]): found[0].removesuffix("weight") for found in matches}
    named = {0: ""} if "weight" in tensors else named
    folded: list[tuple[np.ndarray, np.ndarray, bool]] = []
    for number, following in pairwise([*sorted(named), 0]):
        weights = tensors[f"{named[number]}weight"].astype(np.float64)
        biases = tensors.get(f"{named[number]}bias", np.zeros(len(weights))).astype(np.float64)
        before = folded[-1] if folded else None
        is_chained = weights.ndim == 2 and biases.shape == weights.shape[:1]
        if not is_chained or (before and before[0].shape[0] != weights.shape[1]):
            raise ModelError(f"head '{file}': the shape of its layer {number} does not fit; take another file")
        if before and not before[2]:
            weights, biases = weights @ before[0], weights @ before[1] + biases
            folded.pop()
        folded.append((weights, biases, said.get("activation") == "relu" and following > number + 1))
    if not folded or folded[-1][0].shape[0] != 1 or not all(np.isfinite(w).all() for w, _, _ in folded):
        raise ModelError(f"head '{file}': its layers give no single finite number; take another file")
    layers = tuple((w.astype(np.float32), b.astype(np.float32), is_rectified) for w, b, is_rectified in folded)
    return _Layers(layers, said.get("output") == "sigmoid", said["clip"])


def convert_head(source: str, clip: str, to: str, **settings: str) -> None:
    """Write the layers of a PyTorch or safetensors file as a head for the CLIP ``clip``; ``settings`` as its metadata.

    A PyTorch file is read without running code of it. Raises ModelError if it is none, or makes no head.
    """
    import torch
    from safetensors.torch import load_file, save_file

    try:
        if source.endswith(".safetensors"):
            tensors: Any = load_file(source)
        else:
            tensors = torch.load(source, map_location="cpu", weights_only=True)
        layers = {name: value.float().contiguous() for name, value in tensors.items()}
        save_file(layers, to, {"clip": model_digest(clip), **settings})
    except ModelError:
        raise
    except Exception as error:  # a dozen types: no file, no pickle, classes that it would run, no folder to write to
        said = " ".join(str(error).split())[:200]
        raise ModelError(f"head '{source}' cannot be converted to '{to}' ({type(error).__name__}: {said})") from error
    VectorHead(to, clip)
