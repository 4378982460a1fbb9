"""Decode greedily over buffers of fixed shape, so that a GPU replays one captured CUDA graph per token."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from transformers.cache_utils import Cache, DynamicCache, DynamicLayer, StaticLayer

from pairmill.ops.models.generate.quick_parts import whole_pictures

# Check every 8 steps whether all answers have ended, because each check waits for the device.
LOOK = 8
# Share of the card's memory that is left for prefills: 10 GB of 80, where 16,384 tokens of a 17B model take 6.
PREFILL_SHARE = 0.125
Place = Callable[[dict[str, Any]], dict[str, Any]]


class NotCapturable(Exception):
    """Raised when a model cannot decode over fixed buffers."""


class FixedLayer(StaticLayer):
    """Cache layer over fixed keys and values (rows, columns, heads, width): the first ``length`` columns are seen.

    Each row's token is written at its own column ``place`` (rows,). Models ask for the number of cached tokens only to
    tell a first call from a later one, so it is reported as 1.
    """

    def __init__(
        self, keys: torch.Tensor, values: torch.Tensor, rows: torch.Tensor, place: torch.Tensor, length: int
    ) -> None:
        super().__init__(max_cache_len=length)
        self.keys: torch.Tensor = keys
        self.values: torch.Tensor = values
        self.rows, self.place, self.length = rows, place, length
        self.cumulative_length = torch.ones_like(place[:1])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the keys and values of one token per row; return the visible columns (rows, heads, length, width)."""
        self.keys[self.rows, self.place] = key_states[:, :, 0]
        self.values[self.rows, self.place] = value_states[:, :, 0]
        return self.keys[:, : self.length].transpose(1, 2), self.values[:, : self.length].transpose(1, 2)


@dataclass
class Prefilled:
    """State of n rows after prefill: the model has read their prompts and chosen the first token of each answer.

    The prompts' tokens are concatenated, without padding.
    """

    lengths: torch.Tensor  # tokens of each prompt (n,)
    rows: torch.Tensor  # the row of each token (tokens,)
    columns: torch.Tensor  # its number in the row (tokens,)
    cached: torch.Tensor | None  # its number among the tokens of the cache (tokens,); None: the same
    last: torch.Tensor  # position ids (..., n, 1) of the prompts' last tokens
    first: torch.Tensor  # tokens (n,) of the answers
    layers: Any  # of a cache with the prompts' keys and values
    seen: torch.Tensor | None  # tokens (n, vocabulary) of the prompts, for a model with a repetition penalty


@dataclass
class Window:
    """The first ``length`` columns of the buffers, to which a decoding step attends, with its captured CUDA graph.

    A step over few columns reads few keys; later columns are not read at all, instead of being masked. A decoder that
    attends by lengths reads each row's own columns alone, and has one window of all columns.
    """

    length: int
    cache: Cache
    graph: Any = None


def _part(flat: torch.Tensor, like: torch.Tensor, rows: int, length: int) -> torch.Tensor:
    """View the beginning of ``flat`` as (rows, length, heads, width), with the heads and width of ``like``."""
    shape = (rows, length, like.shape[1], like.shape[3])
    return flat[: math.prod(shape)].view(shape)


def window_of(columns: int) -> int:
    """Round a number of columns up, by at most an eighth or 64, so that few window lengths must be captured."""
    grain = max(64, (1 << columns.bit_length()) // 16)
    return -(-columns // grain) * grain


class Buffers:
    """Decoding state of ``rows`` slots; the answer in each begins and ends independently.

    A row has ``length`` columns for the keys and values of its prompt and answer, from column 0 on. A row that has
    ended writes behind its end, where nothing is read.

    Attributes:
        last: The last token of each row (rows, 1).
        said: Generated tokens of each answer (rows, answer + 1), ``pad`` after its end; the last column is scratch.
        count: Number of tokens of each answer (rows,).
        most: The most tokens of each answer (rows,).
        place: Column of each row's last token (rows,).
        bounds: What `attend_within` takes for a step (3, 1, 1, rows + 1).
        positions: Position ids (..., rows, 1) of the last tokens.
        done: Whether each row has ended (rows,); initially all True.
    """

    def __init__(self, decoder: "Decoder", rows: int, length: int, answer: int, like: Prefilled) -> None:
        self.decoder, self.length, self.answer = decoder, length, answer
        device = like.last.device

        def ids(*shape: int, of: int = 0) -> torch.Tensor:
            return torch.full(shape, of, dtype=torch.long, device=device)

        self.rows = torch.arange(rows, device=device)
        self.last, self.said = ids(rows, 1), ids(rows, answer + 1, of=decoder.pad)
        self.count, self.most, self.place = ids(rows), ids(rows), ids(rows)
        self.positions = ids(*like.last.shape[:-2], rows, 1)
        self.columns = torch.arange(length, device=device)
        starts = torch.arange(rows + 1, dtype=torch.int32, device=device)
        self.bounds = torch.stack([starts, starts * length, torch.ones_like(starts)])[:, None, None]
        self.done = torch.ones(rows, dtype=torch.bool, device=device)
        self.seen = None if like.seen is None else like.seen.new_zeros((rows, like.seen.shape[1]))
        self.layers = [
            (_part(keys, layer.keys, rows, length), _part(values, layer.values, rows, length))
            for (keys, values), layer in zip(decoder.flat, like.layers, strict=True)
        ]
        self.windows: dict[int, Window] = {}
        self.begin()

    def begin(self) -> None:
        """Reset the buffers: mark all rows as ended."""
        self.done.fill_(True)
        self.place.zero_()
        self.positions.zero_()

    def fill(self, slots: torch.Tensor, new: Prefilled, most: int) -> None:
        """Start answers of at most ``most`` tokens for prefilled prompts, in the rows ``slots`` (n,).

        The keys and values of ``new`` are freed.
        """
        # By index_fill_, since `x[slots] = number` copies the number from the host, and waits for the device.
        self.said.index_fill_(0, slots, self.decoder.pad)
        self.said[slots, 0] = new.first
        self.last[slots, 0] = new.first
        for each, number in ((self.count, 1), (self.most, most)):
            each.index_fill_(0, slots, number)
        self.place[slots] = new.lengths
        self.positions[..., slots, :] = new.last + 1
        self.done[slots] = self._ends(new.first) | (most <= 1)
        if self.seen is not None and new.seen is not None:
            self.seen[slots] = new.seen.scatter_(1, new.first[:, None], True)
        at = slots[new.rows] * self.length + new.columns
        for kept, layer in zip(self.layers, new.layers, strict=True):
            for into, each in zip(kept, (layer.keys, layer.values), strict=True):
                tokens = each.transpose(1, 2).flatten(0, 1)
                into.flatten(0, 1).index_copy_(0, at, tokens if new.cached is None else tokens[new.cached])
            layer.keys = layer.values = None

    def step(self, columns: int) -> None:
        """Generate one token for each row that has not ended, without waiting for the device.

        ``columns`` is the number of columns that the longest of these rows needs after the step.
        """
        window = self._window(self.length if self.decoder.by_lengths else min(window_of(columns), self.length))
        if window.graph is None:
            self._step(window)
        else:
            window.graph.replay()

    def _window(self, length: int) -> Window:
        """Return the window of the first ``length`` columns, captured on a GPU."""
        if length not in self.windows:
            layers = [FixedLayer(keys, values, self.rows, self.place, length) for keys, values in self.layers]
            window = Window(length, Cache(layers=list(layers)))
            if self.done.device.type == "cuda":
                window.graph = self._captured(window)
            self.windows[length] = window
        return self.windows[length]

    def _step(self, window: Window) -> None:
        """Run the model for one token per row, and update the state in place; rows that have ended stay as they are."""
        found = self.decoder.next_tokens(self, window).masked_fill(self.done, self.decoder.pad)
        self.said[self.rows, torch.where(self.done, self.answer, self.count)] = found
        self.count.add_(~self.done)
        self.done.logical_or_(self._ends(found)).logical_or_(self.count >= self.most)
        self.place.add_(~self.done)
        self.positions.add_(1).masked_fill_(self.done[:, None], 0)  # else it grows beyond the model's positions
        self.last.copy_(found[:, None])
        if self.seen is not None:
            self.seen.scatter_(1, found[:, None], True)

    def _ends(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return which tokens end an answer."""
        return (tokens[:, None] == self.decoder.ends).any(-1)

    def _captured(self, window: Window) -> torch.cuda.CUDAGraph:
        """Capture a step as a CUDA graph after two runs with all rows ended; other threads may pin memory meanwhile."""
        state = [self.done, self.positions, self.last]
        state += [] if self.seen is None else [self.seen]
        before = [each.clone() for each in state]
        self.done.fill_(True)
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


class Decoder:
    """Generate greedily with ``model``: prefill prompts in parts, then run one captured step per token for all rows.

    ``ends`` are the ids of the tokens that end an answer, ``pad`` the id that fills a row after its end token.
    `why_not_capturable` must accept the model. The prefill uses transformers' own cache. Buffers grow to the largest
    batch so far and persist, as does the captured step of each shape. Call from one thread at a time.

    With `attend_by_lengths`, prompts are prefilled one behind another, without padding, and a step reads no column but
    those of each row's tokens; else rows are padded and masked.
    """

    def __init__(self, model: Any, ends: list[int], pad: int) -> None:
        self.model, self.pad = model, pad
        self.ends = torch.tensor(ends, dtype=torch.long, device=model.device)
        self.penalty = model.generation_config.repetition_penalty or 1.0
        self.attend_by_lengths(False)

    def attend_by_lengths(self, on: bool) -> None:
        """Attend by `attend_within`, which the model must take (`takes_lengths`), or by masks."""
        self.by_lengths = on
        self.release()

    @contextmanager
    def endless(self) -> Iterator[None]:
        """Ignore end tokens during the `with` block, in captured steps too, so that all answers have full length."""
        ends = self.ends.clone()
        self.ends.fill_(-1)
        try:
            yield
        finally:
            self.ends.copy_(ends)

    def release(self) -> None:
        """Free the buffers and the captured steps, for example after a batch ran out of memory."""
        self.room = 0  # capacity of ``flat`` in tokens (rows x length)
        self.flat: list[tuple[torch.Tensor, ...]] = []
        self.shapes: dict[tuple[int, int, int], Buffers] = {}
        self.pool: Any = None

    def generate(self, parts: Sequence[dict[str, Any]], max_tokens: int, place: Place = dict) -> torch.Tensor:
        """Generate the likeliest tokens (n, max_tokens) int64 for left-padded prompts; ``pad`` follows an end token.

        Each part, the inputs of consecutive rows on the CPU, is moved to the device by ``place`` and prefilled alone,
        so that only the decoding buffers hold the keys and values of all. Raises NotCapturable if the model caches more
        than the keys and values of all tokens.
        """
        n = sum(len(part["input_ids"]) for part in parts)
        prompt = max(part["input_ids"].shape[1] for part in parts)
        buffers: Buffers | None = None
        firsts: list[torch.Tensor] = []
        starts = [0, *accumulate(len(part["input_ids"]) for part in parts)][:-1]
        for start, part in zip(starts, parts, strict=True):
            new = self.prefill(part, place)
            firsts.append(new.first)
            if max_tokens == 1:
                continue
            if buffers is None:
                buffers = self.buffers(_round_rows(n), prompt, max_tokens, new)
                buffers.begin()
            buffers.fill(buffers.rows[start : start + len(new.first)], new, max_tokens)
        if buffers is None:
            return torch.cat(firsts)[:, None]
        for step in range(1, max_tokens):
            if step % LOOK == 0 and bool(buffers.done.all()):
                break
            buffers.step(prompt + step)
        return buffers.said[:n, :max_tokens].clone()

    def prefill(self, given: dict[str, Any], place: Place = dict) -> Prefilled:
        """Run the model on whole prompts, with transformers' own cache, and choose the first token of each answer.

        ``given`` are left-padded inputs on the CPU. What depends on their values is found there: reading it from the
        device would wait for all that was launched before.
        """
        ids, mask = given["input_ids"], given["attention_mask"]
        positions = self.model._prepare_position_ids_for_generation(ids, dict(given))
        tokens, lengths = mask.flatten().nonzero()[:, 0], mask.sum(1)
        known = {
            "lengths": lengths,
            "rows": tokens // ids.shape[1],
            "last": positions[..., -1:],
            "positions": positions,
        }
        known |= {"columns": mask.cumsum(1).flatten()[tokens] - 1, "cached": tokens, "ids": ids.flatten()[tokens]}
        packed = given
        if self.by_lengths:
            of_tokens = {name: each for name, each in given.items() if getattr(each, "shape", None) == ids.shape}
            packed = given | {name: each.flatten()[tokens][None] for name, each in of_tokens.items()}
            known |= {"positions": positions.flatten(-2)[..., None, tokens], "ends": lengths.cumsum(0)}
        known, inputs = place(known), place(packed)
        ids, keep, cached = inputs.pop("input_ids"), 1, known["cached"]
        if self.by_lengths:
            bounds = torch.nn.functional.pad(known["ends"], (1, 0)).to(torch.int32)
            inputs["attention_mask"] = bounds.expand(1, 1, int(lengths.max()), -1)
            keep, cached = known["ends"] - 1, None
        cache = DynamicCache(config=self.model.config)
        ready = self.model.prepare_inputs_for_generation(
            ids, past_key_values=cache, position_ids=known["positions"], use_cache=True, logits_to_keep=keep,
            is_first_iteration=True, **inputs,
        )  # fmt: skip
        with whole_pictures(self.model, given) if self.by_lengths else nullcontext():
            logits = self.model(**ready, return_dict=True).logits
        logits = logits[0] if self.by_lengths else logits[:, -1]
        if why := _why_not_fixed(cache.layers, ids.shape[1]):
            raise NotCapturable(f"{type(self.model).__name__} {why}")
        seen = None
        if self.penalty != 1:  # padding is not marked, as in ``generate``: it may be the end token
            seen = torch.zeros_like(logits, dtype=torch.bool)
            seen.index_put_((known["rows"], known["ids"]), torch.ones_like(seen[0, 0]))
        where = known["lengths"], known["rows"], known["columns"], cached, known["last"]
        return Prefilled(*where, self._likeliest(logits, seen), cache.layers, seen)

    def _likeliest(self, logits: torch.Tensor, seen: torch.Tensor | None) -> torch.Tensor:
        """Return the token ids (n,) of the highest logits, after the repetition penalty on ``seen`` tokens."""
        logits = logits.float()
        if seen is not None:
            worse = torch.where(logits < 0, logits * self.penalty, logits / self.penalty)
            logits = torch.where(seen, worse, logits)
        return logits.argmax(-1)

    def next_tokens(self, buffers: Buffers, window: Window) -> torch.Tensor:
        """Run the model on the last token of each row; return the next tokens (rows,)."""
        output = self.model(
            input_ids=buffers.last,
            position_ids=buffers.positions,
            attention_mask=self._visible(buffers, window.length),
            past_key_values=window.cache,
            use_cache=True,
            return_dict=True,
        )
        return self._likeliest(output.logits[:, -1], buffers.seen)

    def _visible(self, buffers: Buffers, length: int) -> torch.Tensor:
        """Return the bounds of a step; else a mask (rows, 1, 1, length), additive for a model with eager attention."""
        if self.by_lengths:
            buffers.bounds[2, 0, 0, :-1] = (buffers.place + 1).masked_fill(buffers.done, 1)
            return buffers.bounds
        keep = (buffers.columns[:length] <= buffers.place[:, None])[:, None, None]
        if self.model.config.get_text_config(decoder=True)._attn_implementation != "eager":
            return keep
        return torch.zeros_like(keep, dtype=self.model.dtype).masked_fill(~keep, torch.finfo(self.model.dtype).min)

    def buffers(self, rows: int, prompt: int, max_tokens: int, like: Prefilled) -> Buffers:
        """Return decoding buffers for ``rows`` prompts and answers of these lengths; all buffers share one memory."""
        length, answer = window_of(prompt + max_tokens), window_of(max_tokens)
        if rows * length > self.room:
            self.release()
            self.room = rows * length
            self.flat = [
                tuple(each.new_zeros(self.room * each.shape[1] * each.shape[3]) for each in (layer.keys, layer.values))
                for layer in like.layers
            ]
        shape = (rows, length, answer)
        if shape not in self.shapes:
            self.shapes[shape] = Buffers(self, *shape, like)
        return self.shapes[shape]

    def rows_that_fit(self, rows: int, prompt: int, max_tokens: int, like: Prefilled) -> int:
        """Return how many rows, at most ``rows``, fit in the device's memory beside later prefills."""
        if self.model.device.type != "cuda":
            return rows
        device = self.model.device
        free, total = torch.cuda.mem_get_info(device)
        allocated = torch.cuda.memory_allocated(device)
        share = int(torch.cuda.get_per_process_memory_fraction(device) * total)
        left = min(free + torch.cuda.memory_reserved(device), share) - allocated
        room = left + sum(each.nbytes for layer in self.flat for each in layer) - int(PREFILL_SHARE * share)
        token = sum(each[0, :, 0].nbytes for layer in like.layers for each in (layer.keys, layer.values))
        return max(1, min(rows, room // (token * window_of(prompt + max_tokens))))


def _why_not_fixed(layers: Sequence[Any], length: int) -> str:
    """Return '' if each layer of a cache has the keys and values of ``length`` tokens, else its actual content."""
    for layer in layers:
        if type(layer) is not DynamicLayer:
            return f"keeps more than the keys and values of all tokens: it has a {type(layer).__name__}"
        if layer.keys is None or layer.keys.shape[2] != length:
            return "keeps keys of other things than the prompt's tokens, as cross-attention to pictures does"
    return ""


def _round_rows(n: int) -> int:
    """Round a row count up to a power of two or 1.5 times a power of two."""
    power = 1 << (n - 1).bit_length()
    return power * 3 // 4 if power >= 4 and n <= power * 3 // 4 else power
