"""Benchmark feeders as engine threads or as processes, while the thread that drives the device runs Python.

Feeders prepare JPEGs without pause, as far as they would be prepared for a GPU: for a vision-language model at 336
pixels (LLaVA's processor, normalisation left to the GPU) or for CLIP at 224. Beside them the device's thread does one
of three things. It is idle; or it sleeps and wakes 500 times a second, like a thread that waits for a GPU; or it runs
`generate` of the demo's captioner on the CPU, a dozen small operations a step launched from Python. The last is the
worst case for a device's thread, since it never waits. Reported are pictures a second, and the speed of that thread
relative to its own speed without feeders in the same round.

Three threads here and other programs share the cores. So the seconds in which a thread is ready and waits for a core,
as Linux counts them, are subtracted. What is left is the speed with a core of its own, waiting for Python's lock
included. This underestimates threads: one that loses its core while it holds the lock stops the others.
Run as ``python -m infra.bench.feeders``.
"""

from __future__ import annotations

import os
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, takewhile
from typing import Any

import numpy as np
import torch

from infra.bench import gpu_texts, photographs
from infra.bench.feeder_processes import FeederProcesses, waited
from infra.bench.measure import ROOT, Row, finish, parser
from pairmill.ops.image.decode import Decode
from pairmill.ops.models.clip import clip_loaded
from pairmill.ops.models.device.engine import Engine
from pairmill.ops.models.vision_language import vlm_loaded
from pairmill.ops.models.vision_language.picture_processor import normalisation

MODELS = ROOT / "infra" / "demo" / "models"
BATCH, PROMPT = 16, "Describe the picture in one sentence, with what is in front and what is behind."
KINDS = ("captioner", "CLIP")
DEVICES = ("nothing", "sleeps", "generates")
FEEDERS = {f"{n} {kind}": (kind, n) for n in (1, 2) for kind in ("threads", "switching", "processes")}
# Seconds until a waiting thread requests Python's lock (sys.setswitchinterval): Python's default, and of "switching".
USUAL, SHORT = 0.005, 0.0005
Prepare = Callable[[list[bytes]], dict[str, torch.Tensor]]


def captioner() -> vlm_loaded.LoadedVlm:
    """Load the demo's captioner in fp32."""
    return vlm_loaded.load(f"hf:{MODELS / 'captioner'}", "fp32", ())


def prepare_for(kind: str) -> Prepare:
    """Return a function that prepares a batch of JPEGs for this kind of model, as on a machine with a GPU."""
    if kind == "CLIP":
        loaded, decode = clip_loaded.load(f"open_clip:local-dir:{MODELS / 'clip'}", "fp32"), Decode(224)
        clip = clip_loaded.LoadedClip(loaded.model, loaded.tokenizer, loaded.kind)  # `loaded` is its process's only one
        clip.image_size = 224
        return lambda datas: {
            "pixels": clip.prepare_pictures([_decoded(decode, each) for each in datas], BATCH).batches[0][1]
        }
    model, decode = vlm_loaded.LoadedVlm(captioner().model, gpu_texts.processor(336, 14, 1000)), Decode(448)
    model.normalise = normalisation(model.processor)
    return lambda datas: model.prepare([_decoded(decode, each) for each in datas], [PROMPT] * len(datas)).inputs


def _decoded(decode: Decode, data: bytes) -> np.ndarray:
    pixels = decode(data)
    assert isinstance(pixels, np.ndarray)
    return pixels


class Device:
    """Stand in for the device's thread during one window: repeat its work until stopped, and count the repetitions."""

    def __init__(self, does: str) -> None:
        self._done, self.rate, self._stop = 0, 0.0, threading.Event()
        work = {"nothing": self._stop.wait, "sleeps": lambda: time.sleep(0.002), "generates": _generate()}[does]
        self._thread = threading.Thread(target=self._go_on, args=(work,))
        self._thread.start()

    def _go_on(self, work: Callable[[], object]) -> None:
        started = time.perf_counter()
        while not self._stop.is_set():
            work()
            self._done += 1
        self.rate = self._done / (time.perf_counter() - started - waited(os.getpid(), threading.get_native_id()))

    def stop(self) -> float:
        """Stop the thread; return its repetitions a second."""
        self._stop.set()
        self._thread.join()
        return self.rate


def _generate() -> Callable[[], object]:
    """Return a function that generates four answers of at most eight tokens, which takes some tenths of a second."""
    model = captioner()
    ready = model.prepare([np.zeros((128, 128, 3), np.uint8)] * 4, ["Describe the picture."] * 4)
    return lambda: model.infer(ready, 8)


class Threads:
    """Run the engine's feeder threads, and discard each prepared batch at once."""

    def __init__(self, prepare: Prepare, n: int, interval: float) -> None:
        self._prepare, self._n, self.interval = prepare, n, interval

    def run(self, pieces: Iterator[list[bytes]], take: Callable[[dict[str, torch.Tensor]], None]) -> float:
        """Prepare all ``pieces``; return the seconds that a feeder waited for a core, mean over feeders."""
        halves: Any = type("Halves", (), {})()
        halves.prepare, halves.infer, halves.fetch = self._prepare, take, lambda _: None
        engine = Engine(halves, self._n)
        engine.run(pieces)
        feeders = [each.native_id for each in threading.enumerate() if each.name.startswith("feeder-")]
        seconds = [waited(os.getpid(), each) for each in feeders if each]
        engine.close()
        return sum(seconds) / len(seconds)


def window(seconds: float, batches: list[list[bytes]], device: str, feeders: Any) -> tuple[float, float]:
    """Run feeders and the device's thread side by side.

    Returns:
        Pictures prepared a second, and repetitions of the device's thread a second.
    """
    ready: list[float] = []
    beside = Device(device)
    started = time.perf_counter()
    if feeders is None:
        time.sleep(seconds)
        return 0.0, beside.stop()
    pieces = takewhile(lambda _: time.perf_counter() - started < seconds, cycle(batches))
    lost = feeders.run(pieces, lambda _: ready.append(time.perf_counter()))
    return BATCH * len(ready) / (ready[-1] - started - lost), beside.stop()


def main() -> None:
    """Run the bench and write its result."""
    options = parser(__doc__)
    photographs.add_option(options, pictures=256)
    options.add_argument("--seconds", type=float, default=2.5, help="of one window")
    options = options.parse_args()
    torch.set_num_threads(1)
    data = photographs.photographs(options)
    batches = [data[start : start + BATCH] for start in range(0, len(data), BATCH)]
    found: dict[tuple[str, str, str], list[tuple[float, float]]] = {}
    for kind in KINDS:
        made = {name: _feeders(kind, how, n) for name, (how, n) in FEEDERS.items()}
        for _ in range(options.rounds):
            for device in DEVICES:
                alone = window(options.seconds, batches, device, None)[1]
                for name, feeders in made.items():
                    if "switching" in name and device != "generates":
                        continue
                    sys.setswitchinterval(getattr(feeders, "interval", USUAL))
                    fed, beside = window(options.seconds, batches, device, feeders)
                    sys.setswitchinterval(USUAL)
                    found.setdefault((kind, device, name), []).append((fed, beside / alone if alone else 1.0))
        for feeders in made.values():
            if isinstance(feeders, FeederProcesses):
                feeders.close()
    rows = [_row(kind, device, n, found) for kind in KINDS for device in reversed(DEVICES) for n in (1, 2)]
    finish("feeders", rows, options, originals="photographs" if options.photos else "generated",
           windows={" | ".join(key): each for key, each in found.items()})  # fmt: skip


def _feeders(kind: str, how: str, n: int) -> Any:
    if how == "processes":
        return FeederProcesses(partial(prepare_for, kind), n)
    return Threads(prepare_for(kind), n, SHORT if how == "switching" else USUAL)


def _row(kind: str, device: str, n: int, found: dict[tuple[str, str, str], list[tuple[float, float]]]) -> Row:
    """Compare threads with processes for one model, device and number of feeders."""
    threads, processes = (found[kind, device, f"{n} {how}"] for how in ("threads", "processes"))
    fed, other = (statistics.median(rate for rate, _ in each) for each in (threads, processes))
    ratio = statistics.median(a / b for (a, _), (b, _) in zip(threads, processes, strict=True))
    kept, kept_beside = (statistics.median(share for _, share in each) for each in (threads, processes))
    note = f"it keeps {kept:.2f} of its own rate, beside processes {kept_beside:.2f}" if device != "nothing" else ""
    if switching := found.get((kind, device, f"{n} switching")):
        quick, share = (statistics.median(column) for column in zip(*switching, strict=True))
        note += f"; switching every {1e3 * SHORT:g} ms {quick:.0f} img/s and {share:.2f}"
    number = f"{n} thread{'s' * (n > 1)}"
    what = f"pictures for a {kind}, {number}, the device's thread {device}".replace("thread nothing", "thread idle")
    return Row(what, "img/s", fed, other, f"{n} process{'es' * (n > 1)}", ratio, note=note)


if __name__ == "__main__":
    main()
