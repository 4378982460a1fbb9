"""What a batch size is fitted by: noise, answers that go on to their limit, and sentences for what reads sentences."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from pairmill.ops.models.clip import clip
from pairmill.ops.models.clip.clip_scores import EmbedSentences
from pairmill.ops.models.device import batch_size
from pairmill.ops.models.device.batch_size import noise
from pairmill.ops.models.language import perplexity
from pairmill.ops.models.language.perplexity import Perplexity
from pairmill.ops.models.vision_language import vlm_loaded
from tests.worlds.tiny import save_clip
from tests.worlds.tiny_families import save_family
from tests.worlds.tiny_language import save_language_model


def test_a_trial_picture_is_noise_and_a_trial_answer_goes_on_whatever_it_says(tmp_path: Path):
    assert noise(30, 40).std() > 60 and np.array_equal(noise(30, 40), noise(30, 40))
    loaded = vlm_loaded.load(save_family(tmp_path, "llava"), "fp32", ())
    ready = loaded.prepare([noise(40, 60)] * 2, ["what is it"] * 2)
    said = loaded.answerer.generate(ready.parts, 6)
    loaded.answerer.ends = said[:, 1].unique().tolist()  # the second word now ends an answer
    assert [each.n_tokens for each in loaded.answer(ready, 6)] == [1, 1]
    steps: list[int] = []
    generate = loaded.answerer.generate
    loaded.answerer.generate = lambda *given: steps.append((found := generate(*given)).shape[1]) or found
    loaded.answer_to_the_end(ready, 6)
    assert steps == [6] and loaded.answerer.ends == said[:, 1].unique().tolist()


@pytest.mark.parametrize("op", ["sentences", "perplexity"])
def test_sentences_and_perplexity_are_fitted_when_the_model_loads_and_keep_their_values(
    op: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    made: Any = EmbedSentences(save_clip(tmp_path)) if op == "sentences" else Perplexity(save_language_model(tmp_path))
    column = "sentence_vector" if op == "sentences" else "perplexity"
    texts = {"text": ["a red engine", "the crew waits", "a", "the old engine waits beside the station"] * 3}
    before = made(texts)[column]
    runs: list[int] = []

    def measured(spec: str, shape: str, first: int, run: Callable[[int], None]) -> int:
        for rows in (first, 2 * first):
            run(rows)
            runs.append(rows)
        return runs[-1]

    module = clip if op == "sentences" else perplexity
    monkeypatch.setattr(module, "measured_batch_size", measured)
    made.load()
    assert runs == [64, 128]
    monkeypatch.setattr(module, "known_batch_size", lambda spec, shape, first: 5)
    np.testing.assert_allclose(made(texts)[column], before, rtol=1e-4, atol=1e-5)


def test_without_a_gpu_nothing_is_known_and_nothing_is_asked_of_torch(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: pytest.fail("there is no device"))
    assert batch_size.known_batch_size("hf:a", "sentences", 64) == 64
