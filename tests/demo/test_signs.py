"""Pictures of text and bare grounds, drawn as the world draws them, lie at the two ends of the demo's rule on pairs."""

from functools import cache
from pathlib import Path

import numpy as np
import pytest

from infra.demo.prose import sentence
from infra.demo.render import NOTHING, draw_bare, draw_rendering, draw_sign
from infra.demo.signs import phrases
from pairmill.ops.models.backends import VisionLanguageModel
from pairmill.ops.models.clip.clip import Clip
from tests.worlds.model_answers import generate

MODELS = Path(__file__).resolve().parents[2] / "infra/demo/models"
LOW, HIGH = 0.48, 0.65  # the ends of the demo recipe's rule


@cache
def clip() -> Clip:
    return Clip(f"open_clip:local-dir:{MODELS / 'clip'}")


def likeness(pictures: list[np.ndarray], texts: list[str]) -> np.ndarray:
    return (clip().embed_images(pictures) * clip().embed_texts(texts)).sum(1)


def signs() -> list[np.ndarray]:
    rng = np.random.default_rng(8)
    return [np.asarray(draw_sign(draw_rendering(rng, NOTHING), phrase)) for phrase in phrases() * 3]


def grounds(n: int) -> list[np.ndarray]:
    rng = np.random.default_rng(9)
    return [np.asarray(draw_bare(draw_rendering(rng, NOTHING))) for _ in range(n)]


def captions(pictures: list[np.ndarray]) -> list[str]:
    model = VisionLanguageModel(f"hf:{MODELS / 'captioner'}")
    prompts = ["Describe the picture."] * len(pictures)
    return [answer.text for answer in generate(model, list(pictures), prompts, 32)]


def with_sentences(said: list[str]) -> list[str]:
    """What fusion makes of the captions, each with a sentence that has nothing to do with it."""
    rng = np.random.default_rng(10)
    heard = [sentence(rng, "distractor").rstrip(".") for _ in said]
    return [
        f"{text}, shown here as {caption[0].lower()}{caption[1:]}" for text, caption in zip(heard, said, strict=True)
    ]


def test_the_captioner_sees_that_it_is_a_sign():
    assert np.mean(["sign that says" in caption for caption in captions(signs())]) >= 0.95  # 0.972 of 36


def test_a_sign_is_too_like_a_text_that_says_what_a_sign_says():
    said = [f"A sign that says {phrase}." for phrase in phrases() * 3]
    assert np.mean(likeness(signs(), with_sentences(said)) > HIGH) >= 0.81  # 0.833 of 36


@pytest.mark.slow
def test_a_bare_ground_is_too_unlike_what_is_said_of_it():
    found = grounds(40)
    assert np.mean(likeness(found, with_sentences(captions(found))) < LOW) >= 0.93  # 0.95 of 40
