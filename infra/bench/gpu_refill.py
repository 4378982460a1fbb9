"""Benchmark what ``30m`` really runs: texts of drawn lengths in refilled slots, from JPEG bytes or from prompts.

The share of the bound is of the whole: bytes, tower, prefill, decoding, and the end, at which slots stay empty.
"""

from __future__ import annotations

import io
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from PIL import Image

from infra.bench.gpu_clip import pictures
from infra.bench.gpu_families import family, family_shape
from infra.bench.gpu_models import number_format
from infra.bench.gpu_row import Seen
from infra.bench.gpu_shapes import Decoder, Tower, Vlm
from infra.bench.gpu_texts import END, PAD, sentences, tokenizer
from infra.bench.gpu_timing import Ceilings, ceilings, device, seconds

FEEDERS, ROUNDS = 8, 8  # a row has ROUNDS times as many texts as slots
HELD = 6_000_000_000  # bytes of prepared inputs
# Qwen2.5-1.5B; prompts of caption, tags and sentence: log-normal, median 150 tokens.
FUSER = Vlm(Tower(0, 0, 1, 0, 0, 1), Decoder(28, 1536, 12, 2, 8960, 151936), (512,), answer=128, prompt=150)
TOY_FUSER = Vlm(Tower(0, 0, 1, 0, 0, 1), Decoder(2, 64, 4, 2, 128, 512), (6,), answer=12, prompt=9)


def measure(argument: str, size: str, known: dict[str, Any]) -> Iterator[Seen]:
    """Measure fused texts ('fuser'), or captions from JPEG bytes by a family of models."""
    if argument == "fuser":
        shape = FUSER if size == "real" else TOY_FUSER
        yield from _measured(fuser(shape), shape, size, "fused texts")
        return
    missing = [name for name in ("simplejpeg", "torchvision") if not find_spec(name)]
    if missing:
        yield Seen("captions from JPEG bytes", "texts/s", None, note=f"not measured: {missing[0]} is absent")
        return
    shape = family_shape(argument, size)
    yield from _measured(Captions(argument, shape, size), shape, size, "captions from JPEG bytes")


def _measured(job: Any, shape: Vlm, size: str, what: str) -> Iterator[Seen]:
    """Run a job's pieces through the engine; before that every fourth, which captures and compiles."""
    from pairmill.ops.models.device.engine import Engine

    card = ceilings(size)
    slots, answers = shape.batches[-1], drawn(ROUNDS * shape.batches[-1], shape.answer)
    job.slots = slots
    decoder = job.loaded.answerer.decoder
    if decoder is None:
        yield Seen(what, "texts/s", None, note="not measured: its decoding is not captured here")
        return
    end_at(decoder, answers)
    pieces = job.pieces(ROUNDS * slots)
    engine = Engine(job, FEEDERS)
    engine.run(pieces[::4])
    took = seconds(lambda: engine.run(pieces))
    engine.close()
    least = bound(shape, card, job.lengths, job.patches, answers, slots)
    rows = len(job.lengths)
    padding = 1 - sum(job.lengths) / job.padded(pieces)
    note = f"{slots} slots, {np.mean(job.lengths):.0f} tokens of a prompt, {np.mean(answers):.0f} of a text, "
    note += f"padding {padding:.3f}, {card.note()}"
    yield Seen(what, "texts/s", rows / took, rows / least, note)
    fed, alone = apart(job, pieces)
    yield Seen(f"{what}, prepared alone", "texts/s", fed, note=f"{FEEDERS} feeders, nothing on the device")
    yield Seen(f"{what}, prepared before", "texts/s", alone, rows / least)


def apart(job: Any, pieces: list[Any]) -> tuple[float, float]:
    """Return the texts a second of the feeders without a device, then of the device without feeders.

    Inputs take at most 6 GB of memory: of larger ones, only the first pieces are prepared.
    """
    from pairmill.ops.models.device.engine import Engine, held_bytes

    first = job.prepare(pieces[0])
    few = pieces[: max(1, HELD // max(1, held_bytes(first)))]
    with ThreadPoolExecutor(FEEDERS) as feeders:
        list(feeders.map(job.prepare, few[:FEEDERS]))  # each thread's own processor
        started = time.perf_counter()
        ready = list(feeders.map(job.prepare, few))
        fed = time.perf_counter() - started
    engine = Engine(Prepared(job), FEEDERS)
    took = seconds(lambda: engine.run(ready))
    engine.close()
    rows = sum(map(len, few))
    return rows / fed, rows / took


class Prepared:
    """Engine job: the device's part of ``job``, for pieces that are prepared."""

    def __init__(self, job: Any) -> None:
        self.infer, self.stepwise, self.fetch = job.infer, job.stepwise, job.fetch

    def prepare(self, piece: Any) -> Any:
        """Return the piece unchanged."""
        return piece


def drawn(n: int, most: int) -> list[int]:
    """Draw ``n`` lengths of texts: log-normal, of 128 the median is 55."""
    lengths = np.random.default_rng(0).lognormal(np.log(55 / 128 * most), 0.5, n)
    return np.clip(lengths.astype(int), 2, most).tolist()


def end_at(decoder: Any, answers: list[int]) -> None:
    """Let texts end after ``answers`` tokens, in the order in which they begin, again and again."""
    make, begun = decoder.buffers, 0

    def buffers(*given: Any) -> Any:
        made = make(*given)
        fill = type(made).fill

        def ending(slots: torch.Tensor, new: Any, most: int) -> None:
            nonlocal begun
            fill(made, slots, new, most)
            lengths = [answers[(begun + row) % len(answers)] for row in range(len(slots))]
            begun += len(slots)
            made.most[slots] = torch.tensor(lengths, device=slots.device)

        made.fill = ending
        return made

    decoder.buffers = buffers


def bound(shape: Vlm, card: Ceilings, lengths: list[int], patches: list[int], answers: list[int], slots: int) -> float:
    """Return the least seconds: operations of all prompts and patches, and as few steps as full slots need."""
    text, tower = shape.decoder, shape.tower
    patch = 2.0 * tower.layers * (4 * tower.width**2 + 2 * tower.width * tower.mlp)
    work = sum(patches) * patch + sum(
        2.0 * (length * text.weights + text.layers * length**2 * text.width + text.head) for length in lengths
    )
    context = np.mean(lengths) + np.mean(answers) / 2
    step = max(slots * shape.decode_flops(context) / card.bf16, shape.decode_bytes(slots, context) / card.bandwidth)
    return work / card.bf16 + (sum(answers) - len(answers)) / slots * step


def mixed_shapes(n: int) -> list[bytes]:
    """Make ``n`` JPEGs with sides of up to 3 : 1, wide and tall: the logarithm of the ratio is uniform."""
    rng = np.random.default_rng(2)
    made = []
    for data in pictures(n):
        picture, ratio = Image.open(io.BytesIO(data)), float(np.exp(rng.uniform(-1, 1) * np.log(3)))
        width, height = picture.size
        size = (min(width, int(height * ratio)), min(height, int(width / ratio)))
        picture.crop((0, 0, *size)).save(buffer := io.BytesIO(), "JPEG", quality=85)
        made.append(buffer.getvalue())
    return made


class Captions:
    """Engine job: captions of JPEGs by a model whose slots are refilled."""

    def __init__(self, name: str, shape: Vlm, size: str) -> None:
        from pairmill.ops.image.decode import Decode
        from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm

        self.name, self.shape = name, shape
        self.loaded = LoadedVlm(*family(name, shape, device()), spec=f"bench {name} {size}")
        _step_on_cpus(self.loaded.answerer, self.loaded.model)
        self.decode = Decode(side=448 if size == "real" else 32)
        self.lengths: list[int] = []
        self.patches: list[int] = []
        self.slots = 0

    def pieces(self, n: int) -> list[list[tuple[bytes, str, int]]]:
        """Group ``n`` pictures and prompts as a run does."""
        made = mixed_shapes(min(n, 256))
        shown = [made[row % len(made)] for row in range(n)]
        prompts = sentences(n, self.shape.prompt, self.shape.decoder.vocabulary)
        sizes = [self.decode.shown_size(data) for data in shown]
        self.lengths = self.loaded.lengths(prompts, sizes)
        tower, shown_as = self.shape.tower, self.loaded.picture_tokens(sizes)
        self.patches = [tokens // tower.visual_tokens * tower.patches for tokens in shown_as]  # signs are left out
        if self.name == "qwen":  # it has no tiles
            self.patches = [tokens * tower.merge**2 for tokens in shown_as]
        groups = [
            [start + row for row in group]
            for start in range(0, n, 8 * self.slots)
            for group in self.loaded.batches(
                prompts[start : start + 8 * self.slots], sizes[start : start + 8 * self.slots], self.slots
            )
        ]
        return [[(shown[row], prompts[row], self.lengths[row]) for row in group] for group in groups]

    def padded(self, pieces: list[list[tuple[bytes, str, int]]]) -> int:
        """Count the tokens of all groups, padding included."""
        return sum(len(piece) * max(length for _, _, length in piece) for piece in pieces)

    def prepare(self, piece: list[tuple[bytes, str, int]]) -> Any:
        """Decode and prepare a group on the CPU."""
        return self.loaded.prepare([self.decode(data) for data, _, _ in piece], [prompt for _, prompt, _ in piece])

    def infer(self, ready: Any) -> Any:
        """Begin a group in the slots."""
        return self.loaded.infer(ready, self.shape.answer, self.slots)

    def stepwise(self, running: Any) -> Any:
        """Return the group, unless it was answered at once."""
        return None if isinstance(running, list) else running

    def fetch(self, running: Any) -> Any:
        """Wait for a group's texts."""
        return running if isinstance(running, list) else running.result()


class FusedTexts(Captions):
    """Engine job: texts of prompts of drawn lengths by a language model whose slots are refilled."""

    def __init__(self, shape: Vlm, loaded: Any) -> None:
        self.shape, self.loaded = shape, loaded
        self.lengths, self.patches, self.slots = [], [], 0

    def pieces(self, n: int) -> list[Any]:
        """Group ``n`` prompts as a run does."""
        rng = np.random.default_rng(1)
        words = np.clip(rng.lognormal(np.log(self.shape.prompt), 0.35, n).astype(int), 2, 4 * self.shape.prompt)
        prompts = [sentences(1, int(tokens), self.shape.decoder.vocabulary, row)[0] for row, tokens in enumerate(words)]
        self.lengths = [len(self.loaded.tokenize(prompt)) for prompt in prompts]
        return [
            [prompts[start + row] for row in group]
            for start in range(0, n, 8 * self.slots)
            for group in self.loaded.batches(prompts[start : start + 8 * self.slots], self.slots)
        ]

    def padded(self, pieces: list[Any]) -> int:
        """Count the tokens of all groups, padding included."""
        return sum(len(piece) * max(len(self.loaded.tokenize(prompt)) for prompt in piece) for piece in pieces)

    def prepare(self, piece: Any) -> Any:
        """Tokenize a group."""
        return self.loaded.prepare(piece)


def fuser(shape: Vlm) -> FusedTexts:
    """Build a random language model of ``shape`` with a tokenizer of whole words."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    from pairmill.ops.models.language.language_model_loaded import LoadedGenerator

    text = shape.decoder
    config = Qwen2Config(
        hidden_size=text.width, intermediate_size=text.mlp, num_hidden_layers=text.layers, vocab_size=text.vocabulary,
        num_attention_heads=text.heads, num_key_value_heads=text.kv_heads, eos_token_id=END, pad_token_id=PAD,
        tie_word_embeddings=False,
    )  # fmt: skip
    with torch.device(device()):
        model: Any = Qwen2ForCausalLM(config).to(number_format(device())).eval()
    model.lm_head.weight.data[END] = 0
    loaded = LoadedGenerator("bench fuser", model, tokenizer(text.vocabulary))
    _step_on_cpus(loaded.answerer, model)
    return FusedTexts(shape, loaded)


def _step_on_cpus(answerer: Any, model: Any) -> None:
    """On a CPU, use the decoding steps that a GPU would capture, and its grouping."""
    from pairmill.ops.models.generate.batching import refill_groups
    from pairmill.ops.models.generate.cuda_graph_decoding import Decoder as Captured

    if device().type == "cpu":
        answerer.decoder = Captured(model, [END], PAD)
        answerer.batches = lambda lengths, most, room: refill_groups(lengths, most)
