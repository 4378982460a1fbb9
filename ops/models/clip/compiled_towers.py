"""Compile the transformer blocks of a CLIP's towers for a GPU, if a trial gives the same vectors.

Between its products, a block reads and writes its state some ten times: norms, biases, residuals, activations. By a sum
over its operations these are 35 % of ViT-L-14's time, quick GELU alone 24 %. What compiling gains is not yet measured
on a card. Only whole blocks are compiled: torch.compile skips a bare nn.Sequential, as which open_clip builds its
feed-forward parts. All blocks of a tower share one compiled graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pairmill.ops.models.device.failures import first_line, is_broken, is_no_room
from pairmill.ops.models.device.run_notes import note

# Classes of open_clip and timm. Convolutional blocks have too many shapes for one graph.
BLOCKS = ("ResidualAttentionBlock", "CustomResidualAttentionBlock", "Block", "EvaBlock", "EvaBlockPostNorm")
# Least cosine of a vector and that of the plain towers. In bf16, other roundings give 0.9999.
LEAST_COSINE = 0.999


def compile_towers(model: Any, embed: Callable[[], torch.Tensor]) -> None:
    """Compile the blocks of both towers; if that fails, or changes vectors by more than rounding, undo and note it.

    ``embed`` makes vectors (n, d) of length 1 of the same pictures and sentences at each call.
    """
    blocks = [part for part in model.modules() if type(part).__name__ in BLOCKS]
    plain = embed()
    for block in blocks:
        block.compile(dynamic=True)
    try:
        cosine = float((embed() * plain).sum(-1).min())
        why = "" if cosine >= LEAST_COSINE else f"a trial gave other vectors, of cosine {cosine:.4f}"
    except Exception as error:  # anything missing in the tool chain, a compiler's own errors
        if is_broken(error) or is_no_room(error):
            raise
        why = first_line(error)
    if why:
        for block in blocks:
            block._compiled_call_impl = None  # what nn.Module.compile sets; it has no inverse
        note(f"CLIP runs uncompiled, which is slower: {why}")
