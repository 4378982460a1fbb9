"""Make tokenizers and processors in code for random models: as many words as the model has tokens, no download."""

from __future__ import annotations

from typing import Any

import numpy as np

SPECIAL = ["<pad>", "<s>", "</s>", "<unk>", "<image>"]
PAD, END, IMAGE = SPECIAL.index("<pad>"), SPECIAL.index("</s>"), SPECIAL.index("<image>")


def tokenizer(vocabulary: int, signs: dict[str, str] | None = None) -> Any:
    """Make a tokenizer of one token a word, for the words 'w5' to 'w151999'; ``signs`` are the first of these."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = list(dict.fromkeys([*SPECIAL, *(signs or {}).values()]))
    words = special + [f"w{number}" for number in range(len(special), vocabulary)]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.add_special_tokens(special)
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=inner, **names, extra_special_tokens=signs or {})


def processor(side: int, patch: int, vocabulary: int) -> Any:
    """Make LLaVA's processor: pictures cropped to ``side`` px, a visual token for each ``patch`` x ``patch`` px.

    It serves InternVL too. InternVL's own processor cuts a picture into up to 12 tiles; this one makes one.
    """
    from transformers import LlavaProcessor

    square = {"height": side, "width": side}
    pictures = _picture_processor()(size={"shortest_edge": side}, crop_size=square)
    return LlavaProcessor(
        pictures, tokenizer(vocabulary), patch_size=patch,
        vision_feature_select_strategy="default", num_additional_image_tokens=1,
    )  # fmt: skip


def _picture_processor() -> Any:
    """Return CLIP's picture processor: torchvision's version, as for hub models, or Pillow's without torchvision."""
    import transformers
    from transformers.utils import is_torchvision_available

    if is_torchvision_available():
        return transformers.CLIPImageProcessor
    from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil

    return CLIPImageProcessorPil


def sentences(n: int, tokens: int, vocabulary: int, seed: int = 0) -> list[str]:
    """Make ``n`` random texts of ``tokens`` tokens each."""
    rng = np.random.default_rng(seed)
    words = rng.integers(32, vocabulary, (n, tokens))  # behind all special words
    return [" ".join(f"w{word}" for word in row) for row in words]
