"""Answer prompts with a causal language model of transformers, from text alone."""

from __future__ import annotations

from dataclasses import dataclass

from ops.models.generation import Generation


@dataclass(frozen=True)
class LanguageModel:
    """Answer prompts with ``spec`` ('hf:NAME' or 'hf:FOLDER'), greedily: the likeliest token each time, no temperature,
    no beams, and no penalties, whatever the model's generation_config.json has for chats.

    A prompt is the user's turn of the model's chat template; a model without one goes on from the bare prompt. What a
    prompt writes like a special token ("<|im_end|>") is text. One that leaves no room for ``max_tokens`` in the model's
    context (at most 8,192 tokens) gets the error 'too_large'; one without a token an empty answer.

    Loaded on first use, once a process; pickled without weights. Code from the model's repository is never run.
    ``batch_size`` is placement: rows of like length are padded on the left and masked, so a batch answers as one by
    one, save for rounding (which can flip a near tie between two words, in bf16 mainly).
    """

    spec: str
    precision: str = "fp32"
    batch_size: int = 16
    version: int = 1

    def generate(self, prompts: list[str], max_tokens: int) -> list[Generation]:
        """Generate an answer a prompt, in the order given.

        Raises ModelError when the model is missing, no causal language model, or one that sees pictures, and when
        ``max_tokens`` fill its whole context.
        """
        # Torch takes 3 CPU seconds to import, and a flow names models that only its workers run.
        from ops.models.language_model_loaded import generate

        return generate(self.spec, self.precision, self.batch_size, prompts, max_tokens)
