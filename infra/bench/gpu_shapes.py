"""Shapes of the models that the GPU benches run, and the operations and bytes that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

ANSWER = 100  # tokens, exactly; Leonardo's captions have 107
PROMPT = 30  # tokens of text beside the picture's
BF16 = 2  # bytes


@dataclass(frozen=True)
class Tower:
    """A ViT: ``layers`` of ``width``, ``heads``, ``mlp``, over pictures of ``side`` pixels cut to ``patch`` pixels.

    ``merge`` patches a side become one visual token: 1 as in LLaVA, 2 as in InternVL and Qwen-VL.
    """

    layers: int
    width: int
    heads: int
    mlp: int
    side: int
    patch: int
    merge: int = 1

    @property
    def visual_tokens(self) -> int:
        return self.patches // self.merge**2

    @property
    def patches(self) -> int:
        return (self.side // self.patch) ** 2

    @property
    def flops(self) -> float:
        """Operations a picture: products of weights, of attention, and of the patches."""
        tokens = self.patches + 1  # with the class token
        layer = 4 * self.width**2 + 2 * self.width * self.mlp + 2 * tokens * self.width
        return 2.0 * (self.layers * tokens * layer + self.patches * 3 * self.patch**2 * self.width)


@dataclass(frozen=True)
class Decoder:
    """A causal language model with grouped-query heads and a gated MLP, as Qwen2.5 and Llama 3 have them."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int

    @property
    def kv_width(self) -> int:
        return self.kv_heads * self.width // self.heads

    @property
    def weights(self) -> int:
        """Of the layers that each token passes, without embeddings and output layer."""
        return self.layers * (2 * self.width**2 + 2 * self.width * self.kv_width + 3 * self.width * self.mlp)

    @property
    def head(self) -> int:
        return self.width * self.vocabulary

    @property
    def kv_bytes(self) -> int:
        """Keys and values of a token, in bf16."""
        return BF16 * 2 * self.layers * self.kv_width


@dataclass(frozen=True)
class Vlm:
    """A tower whose patches become a decoder's first tokens by two linear layers: a LLaVA, or merged an InternVL."""

    tower: Tower
    decoder: Decoder
    batches: tuple[int, ...]  # tried, smallest first
    answer: int = ANSWER
    prompt: int = PROMPT

    @property
    def context(self) -> int:
        """Tokens before the answer."""
        return self.tower.visual_tokens + self.prompt

    @property
    def weight_bytes(self) -> float:
        tower = self.tower.layers * (4 * self.tower.width**2 + 2 * self.tower.width * self.tower.mlp)
        return BF16 * (self.decoder.weights + 2.0 * self.decoder.head + tower + self.projector)

    @property
    def projector(self) -> int:
        return (self.tower.width * self.tower.merge**2 + self.decoder.width) * self.decoder.width

    def prefill_flops(self) -> float:
        """Operations a picture until its first token: tower, projector, prompt, one position of the output layer."""
        text, tokens = self.decoder, self.context
        attention = text.layers * tokens**2 * text.width  # half of the square: causal
        return self.tower.flops + 2.0 * (
            self.tower.visual_tokens * self.projector + tokens * text.weights + attention + text.head
        )

    def decode_flops(self, context: float) -> float:
        """Operations of one more token of one row that has ``context`` tokens before it."""
        text = self.decoder
        return 2.0 * (text.weights + text.head + 2 * context * text.layers * text.width)

    def decode_bytes(self, rows: int, context: float) -> float:
        """Bytes that one step of ``rows`` rows reads: the weights once, every row's keys and values."""
        return BF16 * float(self.decoder.weights + self.decoder.head) + rows * context * self.decoder.kv_bytes


# CLIP's ViT-L/14 at 224 px, 0.3B.
VIT_L_14 = Tower(24, 1024, 16, 4096, 224, 14)
# InternViT-300M at 448 px: 1,024 patches, merged to 256 visual tokens (InternVL3-8B has it, with Qwen2.5-7B).
INTERN_VIT = Tower(24, 1024, 16, 4096, 448, 14, merge=2)
# Of the size of OpenCLIP's ViT-bigG/14, 1.84B: at 448 px as above, and at 490 px 1,225 patches as CogVLM sees them.
BIG_VIT_256 = Tower(48, 1664, 16, 8192, 448, 14, merge=2)
BIG_VIT_1225 = Tower(48, 1664, 16, 8192, 490, 14)
# Qwen2.5-7B (7.6B) and Qwen2.5-14B (14.8B), by their config.json.
QWEN_7B = Decoder(28, 3584, 28, 4, 18944, 152064)
QWEN_14B = Decoder(48, 5120, 40, 8, 13824, 152064)
# The dense 17B is not CogVLM, which runs half of its weights for each token: 39 TFLOP of prefill at 1,225 visual tokens
# beside some 27.
VLMS = {
    "7b": Vlm(INTERN_VIT, QWEN_7B, (64, 128, 256, 512)),
    "17b_256": Vlm(BIG_VIT_256, QWEN_14B, (64, 128, 256)),
    "17b_1225": Vlm(BIG_VIT_1225, QWEN_14B, (32, 64, 96)),
}
TOY_DECODER = Decoder(2, 64, 4, 2, 128, 512)
TOYS = {
    1: Vlm(Tower(2, 32, 2, 64, 32, 8), TOY_DECODER, (1, 2, 4), 12, 6),
    2: Vlm(Tower(2, 32, 2, 64, 32, 4, merge=2), TOY_DECODER, (1, 2, 4), 12, 6),
}
GPT2_LARGE = {"n_embd": 1280, "n_layer": 36, "n_head": 20, "n_positions": 1024, "vocab_size": 50257}
GPT2_TOY = {"n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 512}
PHOTO_WIDTHS = (400, 1400)  # pixels; JPEG, 4:2:0, quality 70 to 92: 0.1 to 1.5 megapixels


def shape_of(name: str, size: str) -> Vlm:
    """Look up a model; at ``size`` 'toy' the smallest of the same kind."""
    return VLMS[name] if size == "real" else TOYS[VLMS[name].tower.merge]
