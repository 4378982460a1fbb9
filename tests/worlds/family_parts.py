"""Build what all tiny vision-language models share: a word tokenizer, a chat template, and small layer widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

hf: Any = transformers  # its processors take settings that their declared types lack

SIGNS = {
    "image_token": "<image>", "video_token": "<video>", "start_image_token": "<img>", "end_image_token": "</img>",
    "context_image_token": "<image>", "boi_token": "<img>", "eoi_token": "</img>", "vision_bos_token": "<img>",
    "vision_eos_token": "</img>", "fake_image_token": "<fake_token_around_image>",
    "end_of_utterance_token": "<end_of_utterance>", "global_image_token": "<global-img>",
    "image_boundary_token": "<fake_token_around_image>", "img_line_break_token": "</img>",
}  # fmt: skip
SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", *dict.fromkeys(SIGNS.values())]
GRID = [f"<row_{row}_col_{column}>" for row in range(1, 7) for column in range(1, 7)]
PROMPTS = (
    "User Assistant : . , ? Describe this image in one or two plain sentences . Name what can be seen ; what is it"
)
VOCABULARY = 160
TEMPLATE = (
    "{% for message in messages %}User : {% for part in message.content %}"
    "{% if part.type == 'image' %}SIGN{% else %}{{ part.text }}{% endif %}{% endfor %} {% endfor %}"
    "{% if add_generation_prompt %}Assistant : {% endif %}"
)
SIDE = {"height": 32, "width": 32}
VISION = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2,
          "image_size": 32, "patch_size": 8}  # fmt: skip
TEXT = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1,
        "eos_token_id": 2}  # fmt: skip


def tiny_tokenizer(signs: dict[str, str] = SIGNS, more: Sequence[str] = ()) -> Any:
    """Return a tokenizer of whole words that names ``signs``, those of all families, with ``more`` special words."""
    words = list(dict.fromkeys([*SPECIAL, *GRID, *PROMPTS.split(), *more]))
    words += [f"word{number}" for number in range(VOCABULARY - len(words))]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    inner.add_special_tokens([*SPECIAL, *GRID, *more])
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return hf.PreTrainedTokenizerFast(tokenizer_object=inner, **names, extra_special_tokens=signs)


def id_of(tokenizer: Any, sign: str = "<image>") -> int:
    return tokenizer.convert_tokens_to_ids(sign)


def with_chat(processor: Any, sign: str = "<image>") -> Any:
    processor.chat_template = TEMPLATE.replace("SIGN", sign)
    return processor


def llama_text() -> dict[str, Any]:
    return TEXT | {"model_type": "llama"}
