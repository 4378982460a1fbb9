"""Hold the decoding state of some rows at fixed device addresses, and step all rows by one token."""

from __future__ import annotations

import math
from dataclasses import dataclass
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

    def next_tokens(self, buffers: Any, window: Any, /) -> torch.Tensor:
        """Run the model on the last token of each row; return the next tokens (rows,)."""
        ...


class FixedLayer(StaticLayer):
    """Cache layer over preallocated keys and values (rows, heads, length, width).

    Each row's token is written at its own column ``place`` (rows,). Models ask for the number of cached tokens only to
    tell a first call from a later one, so it is reported as 1.
    """

    def __init__(self, keys: torch.Tensor, values: torch.Tensor, rows: torch.Tensor, place: torch.Tensor) -> None:
        super().__init__(max_cache_len=keys.shape[2])
        self.keys: torch.Tensor = keys
        self.values: torch.Tensor = values
        self.rows, self.place = rows, place
        self.cumulative_length = torch.ones_like(place[:1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the keys and values of one token a row; return those of all columns."""
        self.keys[self.rows, :, self.place] = key_states[:, :, 0]
        self.values[self.rows, :, self.place] = value_states[:, :, 0]
        return self.keys, self.values


@dataclass
class Prefilled:
    """Some rows after their prompts.

    Attributes:
        mask: Which columns (n, length) hold a prompt's tokens: the last ones of each row.
        positions: Position ids (..., n, length).
        first: First tokens (n,) of the answers.
        layers: Layers of a cache with the prompts' keys and values.
        seen: Tokens (n, vocabulary) of the prompts, for a model with a repetition penalty.
    """

    mask: torch.Tensor
    positions: torch.Tensor
    first: torch.Tensor
    layers: Any
    seen: torch.Tensor | None


@dataclass
class Window:
    """The first ``length`` columns of the buffers, to which a step attends, with the captured step over them.

    Steps over few columns read few keys: those behind them are not read, whether or not a mask hides them.
    """

    length: int
    keep: torch.Tensor
    cache: Cache
    graph: Any = None


def _part(flat: torch.Tensor, like: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """View the beginning of ``flat`` as (rows, heads, length, width), with heads and width of ``like``."""
    shape = (rows, like.shape[1], length, like.shape[3])
    return flat[: math.prod(shape)].view(shape)


def window_of(columns: int) -> int:
    """Round a number of columns up, by at most an eighth or 64, so that there are few steps to capture."""
    grain = max(64, (1 << columns.bit_length()) // 16)
    return -(-columns // grain) * grain


class Buffers:
    """The decoding state of ``rows`` rows, each of which begins and ends on its own.

    A row has ``length`` columns for the keys and values of its prompt and answer. Column 0 is scratch: a row that has
    ended writes there.

    Attributes:
        last: The last token of each row (rows, 1).
        said: The tokens of each answer (rows, answer + 1), ``pad`` behind its end; the last column is scratch.
        count: Number of tokens of each answer (rows,).
        most: The most tokens of each answer (rows,).
        keep: Mask (rows, 1, 1, length) of the columns that are attended to.
        place: Column of each row's last token (rows,); 0 for a row that has ended.
        positions: Position ids (..., rows, 1) of the last tokens.
        done: Whether each row has ended (rows,). At first all have.
    """

    def __init__(self, decoder: BufferedDecoder, rows: int, length: int, answer: int, like: Prefilled) -> None:
        self.decoder, self.length, self.answer = decoder, length, answer
        device = like.positions.device

        def ids(*shape: int, of: int = 0) -> torch.Tensor:
            return torch.full(shape, of, dtype=torch.long, device=device)

        self.rows = torch.arange(rows, device=device)
        self.last, self.said = ids(rows, 1), ids(rows, answer + 1, of=decoder.pad)
        self.count, self.most, self.place = ids(rows), ids(rows), ids(rows)
        self.positions = ids(*like.positions.shape[:-2], rows, 1)
        self.keep = torch.zeros((rows, 1, 1, length), dtype=torch.bool, device=device)
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.seen = None if like.seen is None else like.seen.new_zeros((rows, like.seen.shape[1]))
        self.layers = [
            (_part(keys, layer.keys, rows, length), _part(values, layer.values, rows, length))
            for (keys, values), layer in zip(decoder.flat, like.layers, strict=True)
        ]
        self.windows: dict[int, Window] = {}
        self.begin()

    def begin(self) -> None:
        """End all rows."""
        self.done.fill_(True)
        self.keep.fill_(False)
        self.place.zero_()
        self.positions.zero_()

    def fill(self, slots: torch.Tensor, new: Prefilled, most: int) -> None:
        """Begin prefilled rows in the rows ``slots`` (n,), with answers of at most ``most`` tokens.

        The keys and values of ``new`` are freed.
        """
        n = new.mask.shape[1]
        # By index_fill_, since `x[slots] = number` copies the number from the host, and waits for the device.
        self.said.index_fill_(0, slots, self.decoder.pad)
        self.said[slots, 0] = new.first
        self.last[slots, 0] = new.first
        for each, number in ((self.count, 1), (self.most, most), (self.place, n + 1)):
            each.index_fill_(0, slots, number)
        self.positions[..., slots, :] = new.positions[..., -1:] + 1
        self.keep[slots] = torch.nn.functional.pad(new.mask.bool(), (1, self.length - n - 1))[:, None, None]
        self.done[slots] = self._ends(new.first) | (most <= 1)
        if self.seen is not None and new.seen is not None:
            self.seen[slots] = new.seen.scatter_(1, new.first[:, None], True)
        for (keys, values), layer in zip(self.layers, new.layers, strict=True):
            keys[slots, :, 1 : n + 1], values[slots, :, 1 : n + 1] = layer.keys, layer.values
            layer.keys = layer.values = None

    def step(self, columns: int) -> None:
        """Generate one token for each row that has not ended, without waiting for the device.

        ``columns`` is the least number of columns that holds the tokens of all of them after the step.
        """
        window = self._window(min(window_of(columns), self.length))
        if window.graph is None:
            self._step(window)
        else:
            window.graph.replay()

    def _window(self, length: int) -> Window:
        """Return the window of the first ``length`` columns, captured on a GPU."""
        if length not in self.windows:
            views = [(keys[:, :, :length], values[:, :, :length]) for keys, values in self.layers]
            layers = [FixedLayer(keys, values, self.rows, self.place) for keys, values in views]
            window = Window(length, self.keep[..., :length], Cache(layers=list(layers)))
            if self.done.device.type == "cuda":
                window.graph = self._captured(window)
            self.windows[length] = window
        return self.windows[length]

    def _step(self, window: Window) -> None:
        """Run the model for one token per row, and update the state in place; rows that have ended stay as they are."""
        # `keep[...] = True` would copy from the host, which no captured graph may hold.
        self.keep.scatter_(3, self.place[:, None, None, None], True)
        found = self.decoder.next_tokens(self, window).masked_fill(self.done, self.decoder.pad)
        self.said[self.rows, torch.where(self.done, self.answer, self.count)] = found
        self.count.add_(~self.done)
        self.done.logical_or_(self._ends(found)).logical_or_(self.count >= self.most)
        self.place.add_(1).masked_fill_(self.done, 0)
        self.positions.add_(1).masked_fill_(self.done[:, None], 0)  # else it grows beyond the model's positions
        self.last.copy_(found[:, None])
        if self.seen is not None:
            self.seen.scatter_(1, found[:, None], True)

    def _ends(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return which tokens end an answer."""
        return (tokens[:, None] == self.decoder.ends).any(-1)

    def _captured(self, window: Window) -> torch.cuda.CUDAGraph:
        """Capture a step as a CUDA graph, after two warm-up runs that compile and choose kernels.

        The warm-up runs change no row, since all are marked as ended meanwhile. The capture mode 'thread_local' allows
        other threads to pin memory.
        """
        state = [self.done, self.place, self.positions, self.last, self.keep]
        state += [] if self.seen is None else [self.seen]
        before = [each.clone() for each in state]
        self.done.fill_(True)
        self.place.zero_()
        beside = torch.cuda.Stream()
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(2):
                self._step(window)
        torch.cuda.current_stream().wait_stream(beside)
        if self.decoder.pool is None:
            self.decoder.pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=self.decoder.pool, capture_error_mode="thread_local"):
            self._step(window)
        for each, was in zip(state, before, strict=True):
            each.copy_(was)
        return graph
