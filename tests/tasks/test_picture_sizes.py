"""The sizes of pictures reach the model that groups them into batches, before any is decoded."""

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from pairmill.catalog.pending.item import WorkItem
from pairmill.ops.fault import Fault
from pairmill.ops.image.decode import Decode
from pairmill.tasks.generate import generative_job
from pairmill.tasks.generate.caption import CaptionPictures
from pairmill.tasks.generate.generative_job import Queries

SIZES = [(60, 90), (90, 60), (300, 31), (64, 64)]


def encoded(width: int, height: int, orientation: int = 1) -> bytes:
    image, stream = Image.fromarray(np.full((height, width, 3), 90, np.uint8)), io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = orientation
    image.save(stream, "JPEG", exif=exif)
    return stream.getvalue()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("orientation", [1, 6])
def test_the_size_by_the_header_is_that_of_the_decoded_picture(size: tuple[int, int], orientation: int):
    decode, data = Decode(side=48), encoded(*size, orientation)
    pixels: Any = decode(data)
    assert decode.shown_size(data) == pixels.shape[:2]


class Model:
    """A model that keeps the sizes that it is told."""

    batch_size = 8

    def __init__(self) -> None:
        self.told: list[Any] = []

    def load(self) -> None: ...

    def fitted(self, *_: object) -> "Model":
        return self

    def batches(self, prompts: list[str], sizes: list[Any]) -> list[list[int]]:
        self.told = sizes
        return [list(range(len(prompts)))]


def test_a_model_is_told_the_sizes_of_all_pictures_and_a_square_for_one_that_is_gone(monkeypatch: pytest.MonkeyPatch):
    datas = [*(encoded(*size) for size in SIZES), Fault("e", "missing", "gone"), b"no picture"]
    keys = tuple("abcdef")
    monkeypatch.setattr(generative_job, "batches", lambda item, rows: [(list(keys), datas)])
    model: Any = Model()
    ask = Queries(model, Decode(side=48), 8, "what")
    (piece,) = CaptionPictures(ask, "a", "c", name="main").pieces(WorkItem("s", keys))
    assert piece.keys == keys
    assert model.told == [(72, 48), (48, 72), (48, 384), (48, 48), (48, 48), (48, 48)]
