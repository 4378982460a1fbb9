"""Define the base of generative transformers models that run on this process's device."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np

from pairmill.ops.models.device.batch_size import measured_batch_size
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:  # the flow process only names models, and torch takes 3 CPU seconds to import
    from pairmill.ops.models.generate.greedy_answers import RunningAnswers
    from pairmill.ops.models.generate.loaded_model import LoadedModel, Prepared


@dataclass(frozen=True)
class LocalModel(ABC):
    """Answer prompts with ``spec`` ('hf:NAME' or 'hf:FOLDER') greedily: each token is the likeliest one.

    Weights load on first use, once per process, and are not pickled. Code from the model's repository never runs.
    ``batch_size`` does not change answers: rows of similar length are padded on the left and masked. Only rounding may
    flip a near tie between two words, mainly in bf16. ``room`` is the most prompt tokens of a batch on a GPU; 0: no
    limit. All methods raise ModelError if the model does not load.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 8
    version: int = 1
    room: int = 0

    max_in_flight: ClassVar[int] = 0

    @abstractmethod
    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> "Prepared":
        """Build the inputs of one batch on the CPU. Images are (h, w, 3) uint8 RGB, None for a prompt without one."""

    @abstractmethod
    def _loaded(self) -> "LoadedModel":
        """Return the model in this process, loaded on first use."""

    def _trial(self, side: int) -> tuple[str, np.ndarray | None]:
        """Return the settings that change how fast batches are, in words, and an image to measure with, if any."""
        return self.precision, None

    def fitted(self, prompt: str, side: int, max_tokens: int) -> Self:
        """Return this model with the batch size that is fastest for ``prompt`` on this GPU; unchanged on a CPU.

        The trial's images have a shorter side of ``side`` pixels, its answers ``max_tokens`` tokens. The first call on
        a GPU generates: no other thread may use the model meanwhile.
        """
        loaded = self._loaded()
        if loaded.model.device.type != "cuda":
            return self
        settings, picture = self._trial(side)

        def run(rows: int) -> None:
            loaded.answer_to_the_end(self.prepare([picture] * rows, [prompt] * rows), max_tokens)

        shape = f"{settings} {len(prompt)} characters {max_tokens} tokens"
        rows = measured_batch_size(self.spec, shape, self.batch_size, run)
        (length,) = loaded.lengths([prompt], [None if picture is None else picture.shape[:2]])
        return replace(self, batch_size=rows, room=rows * length)

    def infer(self, prepared: "Prepared", max_tokens: int) -> "list[Generation] | RunningAnswers":
        """Generate one answer per prepared row.

        With a captured decoder this only begins the rows, which are decoded in ``batch_size`` slots beside other
        batches; otherwise it waits for the answers. A batch that does not fit is halved; a single row that does not fit
        gets the error 'out_of_memory'.
        """
        return self._loaded().infer(prepared, max_tokens, self.batch_size)

    def fetch(self, running: "list[Generation] | RunningAnswers") -> list[Generation]:
        """Block until all rows of a batch are answered; return the answers in row order."""
        return running if isinstance(running, list) else running.result()

    def load(self) -> None:
        """Load the weights now; on a GPU, also try whether decoding can be captured."""
        _ = self._loaded().answerer.decoder
