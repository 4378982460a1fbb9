"""Find faces by MTCNN (Zhang et al. 2016, arXiv 1604.02878): three small convolutional nets, each on fewer places.

The weights (mtcnn.safetensors) are those of facenet-pytorch 2.6.0, whose licence stands beside them (MIT).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pairmill.ops.batch import Batch

if TYPE_CHECKING:
    from torch import Tensor

# By net: sides of the max pools behind each convolution (0 for none), the layer before the outputs, and the outputs.
_NETS = {"pnet": ((2, 0, 0), "", "conv4"), "rnet": ((3, 3, 0), "4", "dense5"), "onet": ((3, 3, 2, 0), "5", "dense6")}
_STEP, _CELL, _FACTOR = 2, 12, 0.709  # of the first net: pixels between places, of a place, and between scales


@dataclass(frozen=True)
class Faces:
    """Read ``pixels`` (list of uint8 (h, w, 3)); add ``faces``, their number, and ``face_share``, [0, 1].

    ``face_share`` is the share of the picture inside the largest face's box, 0 without a face. Faces smaller than
    ``least`` pixels of the decoded picture, and most profiles, are missed; some patterns are taken for faces.
    """

    version: int = 1
    least: int = 20
    thresholds: tuple[float, float, float] = (0.6, 0.7, 0.9)

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with the two columns."""
        boxes = [self.boxes(pixels) for pixels in batch["pixels"]]
        sides = [each[:, 2:4] - each[:, :2] for each in boxes]
        shares = [float(each.prod(axis=1).max(initial=0)) for each in sides]
        areas = [pixels.shape[0] * pixels.shape[1] for pixels in batch["pixels"]]
        share = [min(1.0, each / area) for each, area in zip(shares, areas, strict=True)]
        return batch | {"faces": [len(each) for each in boxes], "face_share": share}

    def boxes(self, pixels: np.ndarray) -> np.ndarray:
        """Return the faces as (n, 5) float32: left, top, right, bottom in pixels, and a probability."""
        import torch

        with torch.inference_mode():
            image = (torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1).float() - 127.5) / 128
            found = self._proposed(image)
            for net, side, threshold in (("rnet", 24, self.thresholds[1]), ("onet", 48, self.thresholds[2])):
                if len(found):
                    found = self._refined(image, found, net, side, threshold)
            return found.numpy()

    def _proposed(self, image: "Tensor") -> "Tensor":
        """Return the places (n, 5) that the first net takes for faces, at all scales of the picture."""
        import torch

        height, width = image.shape[1:]
        scale, found = _CELL / self.least, [torch.zeros(0, 9)]
        while min(height, width) * scale >= _CELL:
            size = int(height * scale + 1), int(width * scale + 1)
            shift, face = _forward("pnet", _resized(image[None], size))
            y, x = (face[0, 1] > self.thresholds[0]).nonzero(as_tuple=True)
            places = torch.stack((x, y), 1) * _STEP + 1
            corners = torch.cat((places, places + _CELL - 1), 1).div(scale).floor()
            scored = torch.cat((corners, face[0, 1, y, x][:, None], shift[0, :, y, x].T), 1)
            found.append(scored[_apart(scored, 0.5)])
            scale *= _FACTOR
        together = torch.cat(found)
        together = together[_apart(together, 0.7)]
        return torch.cat((_shifted(together[:, :4], together[:, 5:], 0), together[:, 4:5]), 1)

    def _refined(self, image: "Tensor", found: "Tensor", net: str, side: int, threshold: float) -> "Tensor":
        """Return the places that a later net confirms, each with corrected corners."""
        import torch

        squares = _squared(found[:, :4])
        height, width = image.shape[1:]
        left, top = squares[:, :2].trunc().int().clamp(min=1).T
        right, bottom = (squares[:, 2].trunc().int().clamp(max=width), squares[:, 3].trunc().int().clamp(max=height))
        inside = ((right >= left) & (bottom >= top)).nonzero()[:, 0].tolist()
        if not inside:
            return found[:0]
        cuts = [image[None, :, top[n] - 1 : bottom[n], left[n] - 1 : right[n]] for n in inside]
        shift, face = _forward(net, torch.cat([_resized(each, (side, side)) for each in cuts]))
        passed = face[:, 1] > threshold
        scored, shift = torch.cat((squares[inside][passed], face[passed, 1:]), 1), shift[passed]
        if net == "rnet":
            kept = _apart(scored, 0.7)
            scored, shift = scored[kept], shift[kept]
        scored = torch.cat((_shifted(scored[:, :4], shift, 1), scored[:, 4:]), 1)
        return scored if net == "rnet" else scored[_apart(scored, 0.7, of_smaller=True)]


def _resized(image: "Tensor", size: tuple[int, int]) -> "Tensor":
    """Resize (n, 3, h, w) by the mean of the covered pixels."""
    from torch.nn.functional import interpolate

    return interpolate(image, size, mode="area")


def _shifted(boxes: "Tensor", shift: "Tensor", more: int) -> "Tensor":
    """Move the corners of boxes (n, 4) by shares of their sides, which count ``more`` pixels."""
    return boxes + shift * (boxes[:, 2:] - boxes[:, :2] + more).repeat(1, 2)


def _squared(boxes: "Tensor") -> "Tensor":
    """Return squares around the same centres, as large as the longer side."""
    import torch

    sides = boxes[:, 2:] - boxes[:, :2]
    longer = sides.max(1, keepdim=True).values
    start = boxes[:, :2] + (sides - longer) / 2
    return torch.cat((start, start + longer), 1)


def _apart(scored: "Tensor", overlap: float, of_smaller: bool = False) -> "Tensor":
    """Return indices of boxes (n, 5), best first, without those that overlap a better one by more than ``overlap``."""
    import torch
    from torchvision.ops import nms

    if not of_smaller:
        return nms(scored[:, :4], scored[:, 4], overlap)
    kept, areas = list[int](), (scored[:, 2:4] - scored[:, :2]).prod(1)
    for n in scored[:, 4].argsort(descending=True).tolist():
        start = torch.maximum(scored[n, :2], scored[kept, :2])
        common = (torch.minimum(scored[n, 2:4], scored[kept, 2:4]) - start).clamp(min=0).prod(1)
        if not (common / torch.minimum(areas[n], areas[kept]) > overlap).any():
            kept.append(n)
    return torch.tensor(kept, dtype=torch.long)


@cache
def _weights() -> "dict[str, Tensor]":
    """Load the weights of the three nets, 2 MB."""
    from safetensors.torch import load_file

    return load_file(Path(__file__).with_name("mtcnn.safetensors"))


def _forward(net: str, x: "Tensor") -> "tuple[Tensor, Tensor]":
    """Return a net's corrections of corners and its probabilities (no face, face) for the pictures ``x``."""
    from torch.nn import functional

    pools, dense, out = _NETS[net]
    weights = _weights()

    def layer(name: str, of: Callable[..., "Tensor"], x: "Tensor") -> "Tensor":
        return of(x, weights[f"{net}.{name}.weight"], weights[f"{net}.{name}.bias"])

    for n, pool in enumerate(pools, 1):
        x = functional.prelu(layer(f"conv{n}", functional.conv2d, x), weights[f"{net}.prelu{n}.weight"])
        x = functional.max_pool2d(x, pool, 2, ceil_mode=True) if pool else x
    head = functional.linear if dense else functional.conv2d
    if dense:
        x = x.permute(0, 3, 2, 1).flatten(1)  # the weights were trained in MATLAB's order
        x = functional.prelu(layer(f"dense{dense}", head, x), weights[f"{net}.prelu{dense}.weight"])
    ends = partial(layer, of=head, x=x)
    return ends(f"{out}_2"), ends(f"{out}_1").softmax(1)
