"""Describe pictures by the class that an image classifier of timm names, put into a template: no model writes it."""

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairmill.ops.models.generation import Generation
from pairmill.ops.models.model_digest import model_digest, resolve
from pairmill.ops.models.model_error import ModelError

if TYPE_CHECKING:
    import torch

TEMPLATE = "A photo of {}."
SECOND = 0.2  # least probability of the second-best class that is named too


@dataclass(frozen=True)
class ClassCaptioner:
    """Put the likeliest class of ``spec`` ('timm:FOLDER') into a template, 'A photo of a ladybug', whatever the prompt.

    FOLDER is a model in timm's 'local-dir:' form, whose config.json lists ``label_names``. A class name is read up to
    its first comma. A second class is named where its probability is at least 0.2: 'a ladybug, perhaps a leaf beetle'.
    """

    spec: str
    batch_size: int = 16
    version: int = 1

    max_in_flight: ClassVar[int] = 0
    answer_settings: ClassVar[tuple[str, ...]] = ()
    shows_images: ClassVar[bool] = True

    def load(self) -> None:
        """Load the weights, once per process. Raises ModelError if they are missing or damaged."""
        _loaded(self.spec)

    def fitted(self, prompt: str, side: int, max_tokens: int) -> "ClassCaptioner":
        """Return this model: its batches are small."""
        return self

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches in their order."""
        rows = list(range(len(prompts)))
        return [rows[first : first + self.batch_size] for first in range(0, len(rows), self.batch_size)]

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> "torch.Tensor":
        """Resize images (h, w, 3) uint8 to the network's input (n, 3, s, s) float32: shorter side, then the centre."""
        import torch
        from torch.nn.functional import interpolate

        config = _loaded(self.spec)[0].pretrained_cfg
        side, fitted = int(config["input_size"][-1]), []
        for picture in pictures:
            if picture is None:
                raise ModelError(f"model '{self.spec}' names what pictures show; it answers no prompt without one")
            image = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)[None].float()
            scale = side / min(image.shape[2:])
            size = [max(side, round(edge * scale)) for edge in image.shape[2:]]
            image = interpolate(image, size=size, mode="bicubic", antialias=True, align_corners=False)[0]
            top, left = (size[0] - side) // 2, (size[1] - side) // 2
            fitted.append(image[:, top : top + side, left : left + side].clamp(0, 255) / 255)
        mean, deviation = (torch.tensor(config[name]).view(3, 1, 1) for name in ("mean", "std"))
        return (torch.stack(fitted) - mean) / deviation

    def infer(self, prepared: "torch.Tensor", max_tokens: int) -> list[Generation]:
        """Name the likeliest classes."""
        import torch

        network, labels = _loaded(self.spec)
        with torch.inference_mode():
            shares, classes = network(prepared.to(next(network.parameters()).device)).softmax(-1).topk(2)
        answers = []
        for share, (first, second) in zip(shares[:, 1].tolist(), classes.tolist(), strict=True):
            named = labels[first] + (f", perhaps {labels[second]}" if share >= SECOND else "")
            text = TEMPLATE.format(named)
            answers.append(Generation(text, len(text.split()), "stop", 0.0))
        return answers

    def fetch(self, running: list[Generation]) -> list[Generation]:
        """Return the answers."""
        return running


def class_captioner(spec: str, precision: str, batch_size: int, encoding: str) -> ClassCaptioner:
    """Return the captioner of ``spec``; it works in fp32, on this process's device."""
    return ClassCaptioner(spec, batch_size)


def class_digest(spec: str) -> str:
    """Hash the model's files to 32 hex digits. Raises ModelError if they are missing."""
    return model_digest(_as_folder(spec))


def _as_folder(spec: str) -> str:
    """Return the spec by which a model's folder is found."""
    return f"hf:{Path(spec.removeprefix('timm:')).expanduser().absolute()}"


@cache
def _loaded(spec: str) -> tuple[Any, list[str]]:
    """Return the network and its class names with their articles, loaded once per process. Raises ModelError."""
    import timm

    from pairmill.ops.models.device.device import device

    folder = resolve(_as_folder(spec))
    try:
        names = json.loads((folder / "config.json").read_bytes())["label_names"]
        network = timm.create_model(f"local-dir:{folder}", pretrained=True).eval().to(device())
    except Exception as error:  # a damaged checkpoint, a config without names, another kind of model
        raise ModelError(f"model '{spec}' does not load: {error!r}; check its config.json and weights") from error
    firsts = [name.split(",")[0].strip() for name in names]
    return network, [f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}" for name in firsts]
