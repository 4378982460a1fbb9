"""Define Generation, the answer of a generative model, and Answering, the interface of every backend."""

from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

# The names by which servers and their proxies call an end token, and the token limit.
_FINISHES = {
    "stop": ("stop", "eos", "eos_token", "stop_sequence", "end_turn"),
    "length": ("length", "max_tokens", "max_length", "model_length"),
}


def finish_name(said: str) -> str:
    """Return 'stop' or 'length' for a server's synonym ('eos_token', 'MAX_TOKENS'), any other reason unchanged."""
    return next((name for name, others in _FINISHES.items() if said.lower() in others), said)


@dataclass(frozen=True)
class Generation:
    """One answer of a generative model.

    ``finish`` is why it ends: 'stop' (an end token), 'length' (cut by ``max_tokens``), 'content_filter', 'refusal', or
    a server's own reason ('abort', 'tool_calls'). ``error`` is '' or a quarantine reason, such as 'out_of_memory' (this
    item does not fit the device on its own); ``text`` is then '', or the beginning of an answer that was too long.
    """

    text: str
    n_tokens: int  # of the answer, without the end token if the backend counts them itself
    finish: str
    seconds: float  # the batch's time divided by its rows, or the request's own time
    error: str = ""
    detail: str = ""  # of the error
    prompt_tokens: int = 0  # image included; 0 if the server does not report them
    discarded_tokens: int = 0  # prompt and answer tokens of answers that were discarded and retried
    retries: int = 0
    unbelieved_prompt_tokens: int = 0  # what a server reports beyond the possible maximum
    unbelieved_tokens: int = 0  # the same, of the answer

    @property
    def finished(self) -> bool:
        """Whether the answer ended at an end token, not cut or refused."""
        return self.finish == "stop"


@runtime_checkable
class Stepwise(Protocol):
    """A batch whose device work proceeds only while it is called, so that many such batches are decoded at once."""

    @property
    def has_ended(self) -> bool:
        """Whether the batch needs no more device work. Reading it runs none."""
        ...

    def advance(self) -> None:
        """Run some of the batch's device work, unless it has ended."""


class Answering(Protocol):
    """A model that answers prompts about images, on any backend: images and prompts in, `Generation`s out.

    Implementations are frozen dataclasses that are pickled to workers and load on first use. ``max_in_flight`` is the
    most batches in flight for a model outside this process. It is 0 for a model on this process's device, which only
    one thread may call. ``answer_settings`` names the recipe settings that change answers, besides prompt, token limit
    and image side. ``shows_images`` is whether a fusing model's prompts include the image.
    """

    max_in_flight: ClassVar[int]
    answer_settings: ClassVar[tuple[str, ...]]
    shows_images: ClassVar[bool]

    @property
    def spec(self) -> str:
        """The model's spec, as the recipe names it."""
        ...

    @property
    def version(self) -> int:
        """Version of the answering code, part of a scorer's identity: increase it if answers change, not rare ones."""
        ...

    @property
    def batch_size(self) -> int:
        """Maximum number of rows per batch."""
        ...

    def load(self) -> None:
        """Load the weights, or open the connection. Raises ModelError with the remedy."""

    def fitted(self, prompt: str, side: int, max_tokens: int) -> "Answering":
        """Return this model with the batch size that is fastest for prompts like ``prompt``.

        Images have a shorter side of ``side`` pixels, answers at most ``max_tokens`` tokens.
        """
        ...

    def batches(self, prompts: list[str], sizes: list[tuple[int, int] | None] | None = None) -> list[list[int]]:
        """Group row numbers into batches; ``sizes`` are the images' (height, width), None for a row without image."""
        ...

    def prepare(self, pictures: list[np.ndarray | None], prompts: list[str]) -> Any:
        """Build the inputs of one batch on the CPU. Images are (h, w, 3) uint8 RGB, None for a prompt without one."""

    def infer(self, prepared: Any, max_tokens: int) -> Any:
        """Start generating for a prepared batch; return a handle for `fetch`, which may be `Stepwise`."""

    def fetch(self, running: Any) -> list[Generation]:
        """Block until all rows of a batch are answered; return the answers in row order."""
        ...
