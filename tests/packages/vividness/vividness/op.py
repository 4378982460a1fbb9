"""Score the colours of pictures by a logistic model of their mean colour."""

from dataclasses import dataclass
from functools import cache

import numpy as np
from safetensors.numpy import load_file

from pairmill.ops.models.model_digest import resolve


@dataclass(frozen=True)
class Vividness:
    """Read ``pixels``; add ``vividness`` [0, 1] and ``is_vivid``, whether it is above ``threshold``."""

    model: str
    threshold: float = 0.5
    version: int = 1

    def __call__(self, batch):
        weights = _weights(self.model)
        spread = [[float(np.ptp(pixels.reshape(-1, 3).mean(axis=0))) / 255] for pixels in batch["pixels"]]
        logits = np.array(spread).reshape(-1, 1) @ weights["weight"] + weights["bias"]
        values = 1 / (1 + np.exp(-logits[:, 0]))
        return batch | {"vividness": values, "is_vivid": [bool(value > self.threshold) for value in values]}


@cache
def _weights(spec: str):
    return load_file(resolve(spec) / "model.safetensors")
