"""Rows that a device has no room for are faults, and the others have the values that they have without them."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pairmill.ops.batch import Batch
from pairmill.ops.fault import Fault
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.clip.clip_scores import EmbedImages, EmbedSentences
from pairmill.ops.models.language.perplexity import Perplexity
from tests.examples import examples
from tests.worlds.cramped import Cramped, inputs
from tests.worlds.tiny import save_clip
from tests.worlds.tiny_language import WORDS, save_language_model

N = 12
NO_ROOM = Fault("", "out_of_memory", "no room for it alone")


def pictures() -> Batch:
    rng = np.random.default_rng(5)
    return {"pixels": [rng.integers(0, 256, (32, 32 + 8 * (n % 3), 3), np.uint8) for n in range(N)]}


def sentences() -> Batch:
    """Of unequal lengths, no two equal; the last has no word."""
    words = WORDS.split()
    return {"text": [" ".join(words[n : n + 1 + n % 4]) for n in range(N - 1)] + [""]}


@pytest.fixture(scope="module")
def ops(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Any, Batch]]:
    torch.set_num_threads(1)
    clip, language = (tmp_path_factory.mktemp(name) for name in ("clip", "language"))
    spec = save_clip(clip)
    return {
        "image_vector": (EmbedImages(spec, batch_size=5), pictures()),
        "sentence_vector": (EmbedSentences(spec, batch_size=5), sentences()),
        "perplexity": (Perplexity(save_language_model(language)), sentences()),
    }


@pytest.mark.parametrize("column", ["image_vector", "sentence_vector", "perplexity"])
@given(unfit=st.sets(st.integers(0, N - 1)), most=st.integers(1, N))
@examples(40)
def test_whatever_has_no_room_is_a_fault_and_all_else_has_its_values(
    column: str, ops: dict[str, tuple[Any, Batch]], unfit: set[int], most: int
):
    op, batch = ops[column]
    taken = inputs(op, batch)
    unfit &= taken.keys()  # of an empty text a language model takes nothing, so that it always fits
    found = Cramped(op, frozenset(taken[row] for row in unfit), most)(batch)
    assert found["fault"] == [NO_ROOM if row in unfit else None for row in range(N)]
    expected = op(batch)[column].copy()
    expected[sorted(unfit)] = np.nan
    np.testing.assert_allclose(found[column], expected, rtol=1e-4, atol=1e-5)
    assert found[column].dtype == op(batch)[column].dtype


@pytest.mark.parametrize("column", ["image_vector", "sentence_vector", "perplexity"])
def test_nothing_has_no_faults(column: str, ops: dict[str, tuple[Any, Batch]]):
    op, batch = ops[column]
    found = op({name: [] for name in batch})
    assert found["fault"] == [] and len(found[column]) == 0


def test_who_cannot_do_without_a_vector_is_told_of_memory(monkeypatch: pytest.MonkeyPatch, tmp_path):
    def full(*_: object) -> torch.Tensor:
        raise torch.cuda.OutOfMemoryError("no room")

    clip = Clip(save_clip(tmp_path))
    monkeypatch.setattr(clip.loaded, "embed_tokens", full)
    with pytest.raises(torch.cuda.OutOfMemoryError, match="alone"):
        clip.embed_texts(["a cat"])
