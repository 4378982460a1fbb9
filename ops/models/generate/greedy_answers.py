"""Generate answers greedily with a transformers model, in batches that fit the device, each cut at its end token."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, TypeVar

import torch

from pairmill.catalog.terms.whole_file import cache_on_machine
from pairmill.ops.models.device.device import exact_inference
from pairmill.ops.models.device.failures import first_line, is_broken, is_no_room
from pairmill.ops.models.device.run_notes import note
from pairmill.ops.models.generate import batching
from pairmill.ops.models.generate.batching import BatchPart
from pairmill.ops.models.generate.cuda_graph_decoding import Decoder, Place
from pairmill.ops.models.generate.quick_parts import compile_parts, pack_windows, takes_lengths, unpack_windows
from pairmill.ops.models.generate.refilled_decoding import RefilledBatch, RefilledDecoder
from pairmill.ops.models.generate.trial import NO_TOKEN, TRIAL_VERSION, why_not_capturable, why_not_captured
from pairmill.ops.models.generation import Generation

# Prompts of a trial, no two of one length.
EXAMPLE_PROMPTS = (
    "Describe this image in one or two plain sentences. Name what can be seen; guess nothing.",
    "What is it?",
    "Which things can be seen here, and what colours do they have?",
    "Describe it.",
)
# What a model does without a quick way that a trial tries.
SLOWER = {"windows packed": "its vision tower attends window by window", "by lengths": "its rows are padded and masked"}
Found = TypeVar("Found")


def pin_inputs(inputs: dict[str, Any]) -> dict[str, Any]:
    """Return inputs with their tensors in pinned memory, from which a GPU copies while it computes.

    Without a GPU, or without memory to pin (which is noted for the user), the inputs are returned unchanged.
    """
    if not torch.cuda.is_available():
        return inputs
    try:
        return {name: value.pin_memory() if torch.is_tensor(value) else value for name, value in inputs.items()}
    except Exception as error:
        if not is_no_room(error):
            raise
        note("this machine has no memory left to pin: copies to the GPU wait for it. Give its models fewer feeders.")
        return inputs


class Answerer:
    """A generative model with its tokenizer and the ids of its end tokens.

    ``name`` is the model's spec. ``examples`` returns the inputs of a few batches, each of some different rows, for the
    trial of captured decoding.
    """

    def __init__(
        self, model: Any, tokenizer: Any, name: str = "", examples: Callable[[], list[dict[str, Any]]] = list
    ) -> None:
        self.model, self.tokenizer, self.name, self.examples = model, tokenizer, name, examples
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # Pad on the left, because generation continues from the right end of a row.
        tokenizer.padding_side = "left"
        self.ends = _end_tokens(model, tokenizer)
        self.pad = tokenizer.pad_token_id or 0
        self.slots = RefilledSlots(self)

    def placed(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return inputs with their tensors moved to the model's device, and floats converted to the model's dtype."""
        found = dict(inputs)
        for name, value in inputs.items():
            if torch.is_tensor(value):
                value = value.to(self.model.device, non_blocking=True)
                found[name] = value.to(self.model.dtype) if value.is_floating_point() else value
        return found

    @cached_property
    def decoder(self) -> Decoder | None:
        """The captured decoder, for a bf16 model on a GPU that passes a trial; None for transformers' ``generate``.

        The first access runs the trial on the device, so nothing else may use the model then.
        """
        if self.model.device.type != "cuda" or self.model.dtype != torch.bfloat16:
            return None
        compile_parts(self.model)
        decoder = Decoder(self.model, self.ends, self.tokenizer.pad_token_id or 0)
        if why := why_not_capturable(self.model) or self._trials(decoder):
            self._note_slow(why)
            return None
        note(f"{type(self.model).__name__}: decoding is captured; on a trial its answers were those of generate")
        return decoder

    def _trials(self, decoder: Decoder) -> str:
        """Try the decoder with all quick ways that the model has, then with fewer; return '' or why it fails."""
        has = {"windows packed": pack_windows(self.model), "by lengths": takes_lengths(self.model)}
        ways = [
            [name for name in has if name not in without] for without in ((), ["by lengths"], ["windows packed"], has)
        ]
        first = why = ""
        for how in [how for how in ways if all(has[name] for name in how)]:
            if "windows packed" not in how:
                unpack_windows(self.model)
            decoder.attend_by_lengths("by lengths" in how)
            if not (why := self._trial(decoder, *how)):
                slower = [said for name, said in SLOWER.items() if has[name] and name not in how]
                if slower:
                    note(f"{type(self.model).__name__}: {', '.join(slower)}, which is slower: {first}")
                return ""
            first = first or why
        return why

    def _trial(self, decoder: Decoder, *how: str) -> str:
        """Return '' if the decoder answers prompts as ``generate`` does, else why not. Cached for card and versions."""

        def find() -> str:
            try:
                with exact_inference(), decoder.endless():
                    found = (self._difference(decoder, given) for given in self.examples())
                    return next(filter(None, found), "")
            except Exception as error:
                decoder.release()
                if is_broken(error) or is_no_room(error):
                    raise
                return first_line(error)

        versions = (torch.__version__, version("transformers"), str(TRIAL_VERSION))
        key = (self.name, torch.cuda.get_device_name(), *versions, *how)
        return cache_on_machine("captured.json", key, find, lambda value: isinstance(value, str))

    def _difference(self, decoder: Decoder, given: dict[str, Any]) -> str:
        """Return where the decoder's answers to one batch differ from those of ``generate``, '' if they agree."""

        def decode(_: Any, most: int) -> torch.Tensor:
            return decoder.generate([given], most, self.placed)

        return why_not_captured(self.model, self.placed(given), decode)

    def generate(self, parts: Sequence[BatchPart], max_tokens: int, place: Place | None = None) -> torch.Tensor:
        """Generate at most ``max_tokens`` tokens per row, each the likeliest; return (n, tokens) without the prompts.

        The parts have each row once. ``place`` moves inputs to the device; by default `placed`. If captured decoding
        fails, note it and use transformers' slower loop from then on.
        """
        place = place or self.placed
        self.slots.settle()  # they share the decoder's memory
        with exact_inference():
            if (found := self._captured(parts, max_tokens, place)) is None:
                rows = [row for part in parts for row in self._step_by_step(place(part.inputs), max_tokens)]
                found = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True, padding_value=self.pad)
        order = torch.tensor([row for part in parts for row in part.rows], device=found.device)
        return torch.empty_like(found).index_copy_(0, order, found)

    def _captured(self, parts: Sequence[BatchPart], max_tokens: int, place: Place) -> torch.Tensor | None:
        """Generate with the captured decoder; None without one, or if it has just failed for good."""
        if self.decoder is None:
            return None
        try:
            return self.decoder.generate([part.inputs for part in parts], max_tokens, place)
        except Exception as error:  # an operation that cannot be captured, among others
            if is_broken(error):
                raise
            if is_no_room(error):
                self.decoder.release()
                raise
            self.give_up_capture(error)
            return None

    def give_up_capture(self, error: Exception) -> None:
        """Use transformers' slower loop from now on, and note the error for the user."""
        self._note_slow(first_line(error))
        self.decoder = None

    def batches(self, lengths: list[int], most: int, room: int) -> list[list[int]]:
        """Group rows of these prompt lengths into batches of at most ``most`` rows and ``room`` prompt tokens (0: any).

        On a CPU equal at each run, on a GPU by cost: with a captured decoder in groups that refill its slots.
        """
        if self.model.device.type != "cuda":
            return batching.similar_length_batches(lengths, most)
        return (
            batching.padded_batches(lengths, most, room)
            if self.decoder is None
            else batching.refill_groups(lengths, most)
        )

    def parts(self, lengths: list[int]) -> list[list[int]]:
        """Group the row numbers of a batch into parts to pad and prefill separately: one without a captured decoder."""
        return [list(range(len(lengths)))] if self.decoder is None else batching.prefill_parts(lengths)

    @contextmanager
    def endless(self) -> Iterator[None]:
        """Ignore end tokens during the `with` block, so that a batch takes the time of the longest answers."""
        ends, self.ends = self.ends, [NO_TOKEN]
        try:
            with self.decoder.endless() if self.decoder else nullcontext():
                yield
        finally:
            self.ends = ends

    def _note_slow(self, why: str) -> None:
        """Note that transformers' own loop generates the answers."""
        note(f"{type(self.model).__name__}: answers are generated step by step, which is slower than captured: {why}")

    def _step_by_step(self, inputs: dict[str, Any], max_tokens: int) -> torch.Tensor:
        """Generate with transformers' own greedy loop."""
        ends: dict[str, Any] = {"eos_token_id": self.ends or None, "pad_token_id": self.tokenizer.pad_token_id}
        if self.model.config.model_type == "blip":  # it sets these itself, and says the prompt without its last token
            output = self.model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False, num_beams=1)
            return output[:, inputs["input_ids"].shape[1] - 1 :]
        output = self.model.generate(**inputs, max_new_tokens=max_tokens, do_sample=False, num_beams=1, **ends)
        return self._without_prompt(output, inputs["input_ids"])

    def _without_prompt(self, output: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
        """Remove the tokens before the answer: a decoder repeats the prompt, an encoder-decoder has a start token."""
        if self.model.config.is_encoder_decoder:
            return output[:, 1:]  # Florence-2's start token is its end token
        length = given.shape[1]
        repeats = output.shape[1] >= length and torch.equal(output[:, :length], given)
        return output[:, length:] if repeats else output

    def read(self, generated: torch.Tensor, tokenizer: Any, prompts: list[int], seconds: float) -> list[Generation]:
        """Convert generated token ids (n, tokens) to answers, with the calling thread's own ``tokenizer``.

        ``prompts`` are the numbers of prompt tokens. Each answer gets an equal share of the batch's ``seconds``.
        """
        rows = [self._cut(row) for row in generated.tolist()]
        texts = tokenizer.batch_decode([tokens for tokens, _ in rows], skip_special_tokens=True)
        return [
            Generation(text.strip(), len(tokens), finish, seconds / len(rows), prompt_tokens=read)
            for text, (tokens, finish), read in zip(texts, rows, prompts, strict=True)
        ]

    def _cut(self, tokens: list[int]) -> tuple[list[int], str]:
        """Cut a row at its first end token; return the tokens and the finish, 'stop' or 'length'."""
        end = next((place for place, token in enumerate(tokens) if token in self.ends), None)
        return (tokens, "length") if end is None else (tokens[:end], "stop")


@dataclass(frozen=True)
class RunningAnswers:
    """The answers of a batch whose rows are decoded in slots beside other batches; see `RefilledSlots`."""

    slots: "RefilledSlots"
    batch: RefilledBatch
    read: Callable[[RefilledBatch], list[Generation]]  # turns its tokens into answers
    alone: Callable[[], list[Generation]]  # answers it anew, in a batch of its own

    @property
    def has_ended(self) -> bool:
        """Whether the answers have ended, or must be generated again because the decoder failed."""
        return self.batch.has_ended

    def advance(self) -> None:
        """Run some decoding steps unless the answers have ended."""
        self.slots.attempt(self.batch.advance)

    def result(self) -> list[Generation]:
        """Run the batch to its end and return its answers, in row order."""
        while not self.has_ended:
            self.advance()
        if not self.batch.is_lost:
            return self.read(self.batch)
        self.slots.settle()
        return self.alone()


class RefilledSlots:
    """The decoding slots in which an answerer's captured decoder answers rows of many batches at once.

    If the decoder fails, its running batches are answered again, each on its own. If memory ran out, there are half as
    many slots from then on; after any other failure there are none.
    """

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer
        self._most: int | None = None  # the most slots, once memory has run out
        self._decoder: RefilledDecoder | None = None

    def launch(
        self,
        parts: Sequence[BatchPart],
        rows: int,
        max_tokens: int,
        place: Place,
        read: Callable[[RefilledBatch], list[Generation]],
        alone: Callable[[], list[Generation]],
    ) -> RunningAnswers | list[Generation]:
        """Begin a batch, one row a slot, in one of ``rows`` slots; call ``alone`` if it cannot run beside others.

        Returns the running batch, or the answers of ``alone``. ``read`` converts a finished batch to answers.
        """
        rows = min(rows, self._most or rows)
        n = max((len(part.rows) for part in parts), default=0)
        if not 0 < n <= rows or self._answerer.decoder is None:
            self.settle()
            return alone()
        if self._decoder is None or self._decoder.rows != rows:
            self.settle()
            self._decoder = RefilledDecoder(self._answerer.decoder, rows)
        decoder = self._decoder
        batch = self.attempt(lambda: decoder.launch(parts, max_tokens, place))
        return alone() if batch is None else RunningAnswers(self, batch, read, alone)

    def settle(self) -> None:
        """Run all batches in the slots to their end, so that the decoder is free for a batch of its own."""
        if self._decoder is not None:
            self.attempt(self._decoder.close)
            self._decoder = None

    def attempt(self, work: Callable[[], Found]) -> Found | None:
        """Run device work and return its result; if it fails, give up the running batches and return None.

        Raises the error if the device is lost.
        """
        try:
            with exact_inference():
                return work()
        except Exception as error:
            if is_broken(error):
                raise
            self._give_up(error)
            return None

    def _give_up(self, error: Exception) -> None:
        """Mark the running batches as lost, and answer with half of the slots, or with none."""
        if self._decoder is None:
            raise error
        rows, model = self._decoder.rows, type(self._answerer.model).__name__
        self._decoder.abandon()
        self._decoder = None
        if not is_no_room(error):
            self._answerer.give_up_capture(error)
            return
        if self._answerer.decoder is not None:
            self._answerer.decoder.release()
        self._most = max(1, rows // 2)
        note(f"{model}: the GPU has no memory for {rows} answers at once, {self._most} are generated from now on")


def _end_tokens(model: Any, tokenizer: Any) -> list[int]:
    """List the ids of the tokens that end an answer: the generation config's, else the tokenizer's own."""
    ends = model.generation_config.eos_token_id
    if model.config.model_type == "blip":
        ends = model.config.text_config.sep_token_id
    if ends is None:
        ends = tokenizer.eos_token_id
    return [] if ends is None else [ends] if isinstance(ends, int) else list(ends)
