"""Feeders as threads of the engine or as processes, while the thread that talks to the device runs Python.

JPEGs are prepared without a pause, as far as a card would ever have them prepared: for a vision-language model at 336
pixels (LLaVA's processor, normalisation left to the card) or for CLIP at 224. Beside them a thread does nothing, sleeps
and wakes 500 times a second, as one that waits for a card, or runs `generate` of the demo's captioner on the CPU, whose
steps are a dozen of small operations launched from Python: the worst that a card's thread can be, since it is never
waiting. Told are pictures a second and how fast that thread is beside its own rate without feeders in the same round.

Cores are shared, by three threads here and with other programs. So the seconds in which a thread is ready and waits for
a core, as Linux counts them, are taken off: what is left is what each does with a core of its own, waiting for Python's
lock included. Too little is left to threads by this: one that loses its core while it holds the lock stops the others.
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
from pairmill.ops.models.clip.picture_normalisation import normalisation
from pairmill.ops.models.device.engine import Engine
from pairmill.ops.models.vision_language import vlm_loaded

MODELS = ROOT / "infra" / "demo" / "models"
BATCH, PROMPT = 16, "Describe the picture in one sentence, with what is in front and what is behind."
KINDS = ("captioner", "CLIP")
DEVICES = ("nothing", "sleeps", "generates")
FEEDERS = {f"{n} {kind}": (kind, n) for n in (1, 2) for kind in ("threads", "switching", "processes")}
# Seconds after which a thread that runs Python is asked for the lock by one that waits: Python's own; of "switching".
USUAL, SHORT = 0.005, 0.0005
Prepare = Callable[[list[bytes]], dict[str, torch.Tensor]]


def captioner() -> vlm_loaded.LoadedVlm:
    return vlm_loaded.load(f"hf:{MODELS / 'captioner'}", "fp32")


def prepare_for(kind: str) -> Prepare:
    """Make what prepares a batch of JPEGs for a model of this kind, as it does where there is a card."""
    if kind == "CLIP":
        clip, decode = clip_loaded.load(f"open_clip:local-dir:{MODELS / 'clip'}", "fp32"), Decode(224)
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
    """The thread that talks to the device, for one window: it goes on until it is stopped, and counts what it does."""

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
        """Return how often a second it has done what it does."""
        self._stop.set()
        self._thread.join()
        return self.rate


def _generate() -> Callable[[], object]:
    """Four answers of at most eight tokens, some tenths of a second."""
    model = captioner()
    ready = model.prepare([np.zeros((128, 128, 3), np.uint8)] * 4, ["Describe the picture."] * 4)
    return lambda: model.infer(ready, 8)


class Threads:
    """The engine's feeders; what is ready is let go of at once."""

    def __init__(self, prepare: Prepare, n: int, interval: float) -> None:
        self._prepare, self._n, self.interval = prepare, n, interval

    def run(self, pieces: Iterator[list[bytes]], take: Callable[[dict[str, torch.Tensor]], None]) -> float:
        """Have all ``pieces`` prepared; returns how long a feeder waited for a core, the mean of all."""
        halves: Any = type("Halves", (), {})()
        halves.prepare, halves.infer, halves.fetch = self._prepare, take, lambda _: None
        engine = Engine(halves, self._n)
        engine.run(pieces)
        feeders = [each.native_id for each in threading.enumerate() if each.name.startswith("feeder-")]
        seconds = [waited(os.getpid(), each) for each in feeders if each]
        engine.close()
        return sum(seconds) / len(seconds)


def window(seconds: float, batches: list[list[bytes]], device: str, feeders: Any) -> tuple[float, float]:
    """Return (pictures prepared a second, what the device's thread does a second) beside each other."""
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
