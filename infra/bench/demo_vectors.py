"""Make distinct sentences and pictures with the demo world's generator, and embed them with its shipped CLIP."""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Iterable
from itertools import chain

import numpy as np
import torch

from infra.bench.measure import ROOT
from pairmill.ops.models.clip.clip import Clip

sys.path.insert(0, str(ROOT / "infra" / "demo"))  # modules of infra/demo import each other by their bare names

from canvas import COLOUR_WORDS, PATTERN_WORDS
from prose import noun_phrase, sentence
from render import draw, draw_rendering
from sheets import names, pictures

BLOCK = 2_000


def clip() -> Clip:
    """Load the demo's CLIP."""
    return Clip(f"open_clip:local-dir:{ROOT / 'infra' / 'demo' / 'models' / 'clip'}")


def distinct_sentences(n: int, seed: int = 0, known: Iterable[str] = ()) -> list[str]:
    """Return ``n`` distinct sentences, beginning with ``known``.

    Half name a concept, half describe nothing pictured, as in the demo world.
    """
    rng, concepts = np.random.default_rng(seed), names()
    found = dict.fromkeys(known)
    while len(found) < n:
        if rng.random() < 0.5:
            found[sentence(rng, "distractor")] = None
            continue
        name = concepts[int(rng.integers(len(concepts)))]
        colour, pattern = str(rng.choice(COLOUR_WORDS)), str(rng.choice(PATTERN_WORDS))
        phrase = noun_phrase(rng, name, colour, pattern, str(rng.choice(["large", "small"])))
        found[sentence(rng, "describes", np=phrase)] = None
    return list(found)


def sentence_vectors(n: int) -> np.ndarray:
    """Embed ``n`` sentences on one process per CPU; a million take half an hour of one CPU.

    Returns:
        Unit vectors, (n, d) float32.
    """
    processes = len(os.sched_getaffinity(0))
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        made = pool.starmap(distinct_sentences, [(n // processes, 1 + seed) for seed in range(processes)])
        texts = distinct_sentences(n, known=chain.from_iterable(made))
        step = -(-n // (4 * processes))
        return np.concatenate(pool.map(_embedded, [texts[at : at + step] for at in range(0, n, step)], 1))


def _embedded(texts: list[str]) -> np.ndarray:
    """Embed texts in a worker process, on one thread."""
    torch.set_num_threads(1)
    return clip().embed_texts(texts)


def picture_vectors(n: int, seed: int = 1) -> np.ndarray:
    """Embed ``n`` fresh renderings of concepts drawn evenly.

    Returns:
        Unit vectors, (n, d) float32.
    """
    rng, glyphs, model = np.random.default_rng(seed), pictures(), clip()
    found = []
    for start in range(0, n, BLOCK):
        drawn = [
            draw(draw_rendering(rng, int(rng.integers(len(glyphs)))), glyphs) for _ in range(min(BLOCK, n - start))
        ]
        found.append(model.embed_images([np.asarray(image.convert("RGB")) for image in drawn]))
    return np.concatenate(found)
