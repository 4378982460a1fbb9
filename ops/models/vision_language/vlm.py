"""Answer prompts about images with a vision-language model of transformers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from pairmill.ops.models.device.batch_size import measured_batch_size
from pairmill.ops.models.generation import Generation

if TYPE_CHECKING:
    from pairmill.ops.models.generate.refilled_answers import RunningAnswers
    from pairmill.ops.models.vision_language.vlm_loaded import LoadedVlm, PreparedImages


@dataclass(frozen=True)
class VisionLanguageModel:
    """Answer prompts about images with ``spec`` ('hf:NAME' or 'hf:FOLDER'), greedily: no temperature, no beam search.

    Weights load on first use, once per process, and are not pickled. Code from the model's repository never runs.
    ``batch_size`` does not change answers: rows are padded on the left and masked. Only rounding may flip a near tie
    between two words, mainly in bf16. ``processor`` has (name, value) pairs of `picture_settings`, which change
    answers. ``room`` is the most prompt tokens of a batch on a GPU; 0: no limit. All methods raise ModelError if the
    model does not load.
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 8
    version: int = 1
    processor: tuple[tuple[str, int], ...] = ()
    room: int = 0

    max_in_flight: ClassVar[int] = 0
    answer_settings: ClassVar[tuple[str, ...]] = ("precision", "processor")
    shows_images: ClassVar[bool] = True

    def generate(self, pictures: list[np.ndarray | None], prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate one answer per row, in input order. Images are (h, w, 3) uint8 RGB, None for text alone.

        Raises ValueError if the numbers of images and prompts differ.
        """
        if len(pictures) != len(prompts):
            raise ValueError(f"{len(pictures)} pictures and {len(prompts)} prompts")
        batches = self.batches(prompts, [None if picture is None else picture.shape[:2] for picture in pictures])
        running = []
        for rows in batches:
            ready = self.prepare([pictures[row] for row in rows], [prompts[row] for row in rows])
            running.append(self.infer(ready, max_tokens))
        found = [zip(rows, self.fetch(each), strict=True) for rows, each in zip(batches, running, strict=True)]
        answers = dict(pair for pairs in found for pair in pairs)
        return [answers[row] for row in range(len(prompts))]

    def fitted(self, prompt: str, side: int, max_tokens: int) -> VisionLanguageModel:
        """Return this model with the batch size that is fastest for ``prompt`` on this GPU; on a CPU, unchanged.

        The trial images have a shorter ``side`` in pixels. The first call on a GPU generates: no other thread may use
        the model meanwhile.
        """
        from pairmill.ops.models.vision_language.picture_tokens import noise

        loaded, size = self._loaded(), (side, side * 4 // 3)
        if loaded.model.device.type != "cuda":
            return self

        def run(rows: int) -> None:
            loaded.answer_to_the_end(self.prepare([noise(*size)] * rows, [prompt] * rows), max_tokens)

        shape = f"{self.precision} {side} px {len(prompt)} characters {max_tokens} tokens"
        shape += "".join(f" {name} {value}" for name, value in self.processor)
        rows = measured_batch_size(self.spec, shape, self.batch_size, run)
        return replace(self, batch_size=rows, room=rows * loaded.lengths([prompt], [size])[0])

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches: on a GPU by what they cost, on a CPU of rows of similar length.

        ``sizes`` are the images' (height, width), None for a row without an image. Such a row never shares a batch with
        a row that has an image. Without ``sizes``, every row has an image, all of one size.
        """
        return self._loaded().batches(prompts, sizes, self.batch_size, self.room) if prompts else []

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> PreparedImages:
        """Build the inputs of one batch on the CPU. Either every row has an image, or none has."""
        return self._loaded().prepare(pictures, prompts)

    def infer(self, prepared: PreparedImages, max_tokens: int) -> list[Generation] | RunningAnswers:
        """Generate one answer per prepared row.

        A captured decoder decodes the rows in ``batch_size`` slots beside those of other batches: then this only begins
        them. Any other batch is waited for. A batch that does not fit is halved; a single row that does not fit gets
        the error 'out_of_memory'.
        """
        return self._loaded().infer(prepared, max_tokens, self.batch_size)

    def fetch(self, running: list[Generation] | RunningAnswers) -> list[Generation]:
        """Wait for the answers of a batch."""
        return running if isinstance(running, list) else running.result()

    def load(self) -> None:
        """Load the weights now; on a GPU, also try whether decoding can be captured."""
        _ = self._loaded().answerer.decoder

    def _loaded(self) -> LoadedVlm:
        """Return the model in this process, loaded on first use."""
        # Imported here: torch takes 3 CPU seconds, and the flow process only names models; workers run them.
        from pairmill.ops.models.vision_language.vlm_loaded import load

        return load(self.spec, self.precision, self.processor)
