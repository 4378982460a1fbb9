"""Make tiny random image–text matching models of transformers, BLIP and BridgeTower, with their processors."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BlipConfig,
    BlipForImageTextRetrieval,
    BlipImageProcessor,
    BlipProcessor,
    BridgeTowerConfig,
    BridgeTowerForImageAndTextRetrieval,
    BridgeTowerImageProcessor,
    BridgeTowerProcessor,
    PreTrainedTokenizerFast,
)

SIDE = 32
LETTERS = [chr(code) for code in range(32, 127)]


def _tokenizer() -> PreTrainedTokenizerFast:
    """Make a tokenizer of printable ASCII characters, with the special tokens of BERT."""
    special = ["[PAD]", "[CLS]", "[SEP]", "[UNK]"]
    known = {token: n for n, token in enumerate([*special, *LETTERS])}
    made = Tokenizer(models.WordLevel(known, unk_token="[UNK]"))
    made.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    made.post_processor = processors.TemplateProcessing("[CLS] $A [SEP]", special_tokens=[("[CLS]", 1), ("[SEP]", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]",
        model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def tiny_blip(folder: Path) -> str:
    """Write a random BLIP for retrieval of two layers; return its spec."""
    torch.manual_seed(3)
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = tower | {"vocab_size": 128, "encoder_hidden_size": 32, "max_position_embeddings": 128, "pad_token_id": 0}
    config = BlipConfig(
        text_config=text, vision_config=tower | {"image_size": SIDE, "patch_size": 8}, projection_dim=16,
        image_text_hidden_size=16,
    )  # fmt: skip
    model = BlipForImageTextRetrieval(config)
    with torch.no_grad():  # else all scores are near one half
        for parameter in model.parameters():
            parameter.mul_(6)
    model.save_pretrained(folder)
    BlipProcessor(BlipImageProcessor(size={"height": SIDE, "width": SIDE}), _tokenizer()).save_pretrained(folder)
    return f"hf:{folder}"


def tiny_bridgetower(folder: Path) -> str:
    """Write a random BridgeTower for retrieval of two layers; return its spec."""
    torch.manual_seed(4)
    tower = {"hidden_size": 64, "num_hidden_layers": 2}  # the vision tower has heads of 64
    text = tower | {"vocab_size": 128, "num_attention_heads": 2, "intermediate_size": 64, "pad_token_id": 0,
                    "max_position_embeddings": 128}  # fmt: skip
    config = BridgeTowerConfig(
        text_config=text, vision_config=tower | {"image_size": SIDE, "patch_size": 8}, hidden_size=64,
        num_attention_heads=2, num_hidden_layers=2,
    )  # fmt: skip
    BridgeTowerForImageAndTextRetrieval(config).save_pretrained(folder)
    images = BridgeTowerImageProcessor(size={"shortest_edge": SIDE}, crop_size={"shortest_edge": SIDE})
    BridgeTowerProcessor(images, _tokenizer()).save_pretrained(folder)
    return f"hf:{folder}"
