"""Allocate the inputs and outputs of decoding for one batch shape (rows, length) at fixed device addresses."""

from __future__ import annotations

import math
from typing import Any, Protocol

import torch
from transformers.cache_utils import Cache, StaticLayer


class BufferedDecoder(Protocol):
    """The decoder that buffers belong to.

    Attributes:
        pad: Id of the token that fills a row behind its end token.
        ends: Ids of the tokens that end an answer.
        flat: Memory for the keys and values of all layers.
        pool: Memory pool of the captured CUDA graphs.
    """

    pad: int
    ends: torch.Tensor
    flat: list[tuple[torch.Tensor, ...]]
    pool: Any

    def next_tokens(self, buffers: Any, /) -> torch.Tensor:
        """Run the model on the buffers; return the next tokens (rows,)."""
        ...


class FixedLayer(StaticLayer):
    """Cache layer over preallocated keys and values (rows, heads, length, width), written at column ``place`` (1,)."""

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, place: torch.Tensor) -> None:
        super().__init__(max_cache_len=keys.shape[2])
        self.keys: torch.Tensor = keys
        self.values: torch.Tensor = values
        self.cumulative_length = place
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the keys and values of one token at ``place``; return those of all tokens."""
        self.keys.index_copy_(2, self.cumulative_length, key_states)
        self.values.index_copy_(2, self.cumulative_length, value_states)
        return self.keys, self.values


def _part(flat: torch.Tensor, like: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """View the beginning of ``flat`` as (rows, heads, length, width), with heads and width of ``like``."""
    shape = (rows, like.shape[1], length, like.shape[3])
    return flat[: math.prod(shape)].view(shape)


class Buffers:
    """The decoding state of one batch.

    Attributes:
        tokens: Token ids (rows, length), each in the column of its keys.
        keep: Mask (rows, 1, 1, length) of the columns that are attended to.
        positions: Position ids (…, rows, 1) of the current token.
        place: Column (1,) of the current token.
        prompt: Columns of the prompts, which end together.
        done: Whether each row has ended (rows,). Rows beyond the batch's own are done from the start.
    """

    def __init__(
        self, decoder: BufferedDecoder, rows: int, length: int, prefilled: Any, positions: torch.Tensor, seen: Any
    ) -> None:
        self.decoder = decoder
        device = positions.device
        self.tokens = torch.full((rows, length), decoder.pad, dtype=torch.long, device=device)
        self.keep = torch.zeros((rows, 1, 1, length), dtype=torch.bool, device=device)
        self.positions = torch.zeros((*positions.shape[:-2], rows, 1), dtype=torch.long, device=device)
        self.place = torch.zeros(1, dtype=torch.long, device=device)
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.seen = None if seen is None else seen.new_zeros((rows, seen.shape[1]))
        self.layers = [
            FixedLayer(_part(keys, like.keys, rows, length), _part(values, like.values, rows, length), self.place)
            for (keys, values), like in zip(decoder.flat, prefilled.layers, strict=True)
        ]
        self.cache = Cache(layers=list(self.layers))
        self.prompt = 0
        self.graph = self._captured() if device.type == "cuda" else None

    def begin(self, prompt: int) -> None:
        """Empty the buffers for a batch whose longest prompt has ``prompt`` tokens."""
        self.prompt = prompt
        self.tokens.fill_(self.decoder.pad)
        self.keep.fill_(False)
        self.keep[:, 0, 0, 0] = True  # attention over no columns would be NaN
        self.positions.zero_()
        self.place.fill_(prompt)
        self.done.fill_(True)
        if self.seen is not None:
            self.seen.fill_(False)

    def fill(
        self, start: int, mask: torch.Tensor, positions: torch.Tensor, first: torch.Tensor, prefilled: Any, seen: Any
    ) -> None:
        """Copy a prefilled part of the batch into the rows from ``start`` on, aligned at the prompts' ends.

        Its keys and values are freed.
        """
        n, length = mask.shape
        rows, columns = slice(start, start + n), slice(self.prompt - length, self.prompt)
        self.tokens[rows, self.prompt] = first
        self.keep[rows, 0, 0, 0] = False
        self.keep[rows, 0, 0, columns] = mask.bool()
        self.positions[..., rows, :] = positions[..., -1:] + 1
        self.done[rows] = self._ends(first)
        if self.seen is not None:
            self.seen[rows] = seen.scatter_(1, first[:, None], True)
        for fixed, layer in zip(self.layers, prefilled.layers, strict=True):
            fixed.keys[rows, :, columns], fixed.values[rows, :, columns] = layer.keys, layer.values
            layer.keys = layer.values = None

    def visible(self, model: Any) -> torch.Tensor:
        """Return the attention mask (rows, 1, 1, length): boolean, or additive for a model with eager attention."""
        if model.config.get_text_config(decoder=True)._attn_implementation != "eager":
            return self.keep
        return torch.zeros_like(self.keep, dtype=model.dtype).masked_fill(~self.keep, torch.finfo(model.dtype).min)

    def step(self) -> None:
        """Generate one token per row without waiting for the device."""
        if self.graph is None:
            self._step()
        else:
            self.graph.replay()

    def _step(self) -> None:
        """Run the model for one token per row and update tokens, mask, positions and ended rows in place."""
        self.keep.index_fill_(3, self.place, True)
        found = self.decoder.next_tokens(self).masked_fill(self.done, self.decoder.pad)
        self.place.add_(1)
        self.positions.add_(1)
        self.tokens.index_copy_(1, self.place, found[:, None])
        self.done.logical_or_(self._ends(found))
        if self.seen is not None:
            self.seen.scatter_(1, found[:, None], True)

    def _ends(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return which tokens end an answer."""
        return (tokens[:, None] == self.decoder.ends).any(-1)

    def _captured(self) -> torch.cuda.CUDAGraph:
        """Capture a step as a CUDA graph, after two warm-up runs that compile and choose kernels.

        The capture mode 'thread_local' allows other threads to pin memory meanwhile.
        """
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(beside)
        if self.decoder.pool is None:
            self.decoder.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.decoder.pool, capture_error_mode="thread_local"):
            self._step()
        return graph
