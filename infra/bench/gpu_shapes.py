"""Define the shapes of the models that the GPU benches run, and their operations and bytes."""

from __future__ import annotations

from dataclasses import dataclass

ANSWER = 100  # tokens, exactly; Leonardo's captions have 107
PROMPT = 30  # text tokens, beside the visual ones
BF16 = 2  # bytes


@dataclass(frozen=True)
class Tower:
    """Vision transformer: ``layers`` of ``width``, ``heads``, ``mlp``; pictures of ``side`` px, patches of ``patch``.

    ``merge`` x ``merge`` patches become one visual token: 1 as in LLaVA, 2 as in InternVL and Qwen-VL.
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
        """Visual tokens a picture."""
        return self.patches // self.merge**2

    @property
    def patches(self) -> int:
        """Patches a picture."""
        return (self.side // self.patch) ** 2

    @property
    def flops(self) -> float:
        """Operations a picture: products with weights, of attention, and of the patches."""
        tokens = self.patches + 1  # with the class token
        layer = 4 * self.width**2 + 2 * self.width * self.mlp + 2 * tokens * self.width
        return 2.0 * (self.layers * tokens * layer + self.patches * 3 * self.patch**2 * self.width)


@dataclass(frozen=True)
class Decoder:
    """Causal language model with grouped-query heads and a gated MLP, as in Qwen2.5 and Llama 3."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    mlp: int
    vocabulary: int

    @property
    def kv_width(self) -> int:
        """Width of the keys, and of the values."""
        return self.kv_heads * self.width // self.heads

    @property
    def weights(self) -> int:
        """Weights of the layers that each token passes, without embeddings and output layer."""
        return self.layers * (2 * self.width**2 + 2 * self.width * self.kv_width + 3 * self.width * self.mlp)

    @property
    def head(self) -> int:
        """Weights of the output layer."""
        return self.width * self.vocabulary

    @property
    def kv_bytes(self) -> int:
        """Bytes of a token's keys and values, in bf16."""
        return BF16 * 2 * self.layers * self.kv_width


@dataclass(frozen=True)
class Vlm:
    """Tower and decoder joined by two linear layers: a LLaVA, or with merged patches an InternVL."""

    tower: Tower
    decoder: Decoder
    batches: tuple[int, ...]  # batch sizes to try, ascending
    answer: int = ANSWER
    prompt: int = PROMPT

    @property
    def context(self) -> int:
        """Tokens before the answer: visual tokens and prompt."""
        return self.tower.visual_tokens + self.prompt

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights in bf16."""
        tower = self.tower.layers * (4 * self.tower.width**2 + 2 * self.tower.width * self.tower.mlp)
        return BF16 * (self.decoder.weights + 2.0 * self.decoder.head + tower + self.projector)

    @property
    def projector(self) -> int:
        """Weights of the two linear layers between tower and decoder."""
        return (self.tower.width * self.tower.merge**2 + self.decoder.width) * self.decoder.width

    def prefill_flops(self) -> float:
        """Return the operations a picture until its first token.

        They are those of the tower, the projector, the prompt and one position of the output layer.
        """
        text, tokens = self.decoder, self.context
        attention = text.layers * tokens**2 * text.width  # half of the square: causal
        return self.tower.flops + 2.0 * (
            self.tower.visual_tokens * self.projector + tokens * text.weights + attention + text.head
        )

    def decode_flops(self, context: float) -> float:
        """Return the operations of one more token of one row with ``context`` tokens before it."""
        text = self.decoder
        return 2.0 * (text.weights + text.head + 2 * context * text.layers * text.width)

    def decode_bytes(self, rows: int, context: float) -> float:
        """Return the bytes that one step of ``rows`` rows reads: the weights once, and every row's keys and values."""
        return BF16 * float(self.decoder.weights + self.decoder.head) + rows * context * self.decoder.kv_bytes


# CLIP's ViT-L/14 at 224 px, 0.3B.
VIT_L_14 = Tower(24, 1024, 16, 4096, 224, 14)
# InternViT-300M at 448 px: 1,024 patches, merged to 256 visual tokens (InternVL3-8B has it, with Qwen2.5-7B).
INTERN_VIT = Tower(24, 1024, 16, 4096, 448, 14, merge=2)
# The size of OpenCLIP's ViT-bigG/14, 1.84B: at 448 px as above, and at 490 px with CogVLM's 1,225 patches.
BIG_VIT_256 = Tower(48, 1664, 16, 8192, 448, 14, merge=2)
BIG_VIT_1225 = Tower(48, 1664, 16, 8192, 490, 14)
# Qwen2.5-7B (7.6B) and Qwen2.5-14B (14.8B), from their config.json.
QWEN_7B = Decoder(28, 3584, 28, 4, 18944, 152064)
QWEN_14B = Decoder(48, 5120, 40, 8, 13824, 152064)
# The dense 17B is not CogVLM, which runs half of its weights for each token: its prefill at 1,225 visual tokens takes
# 39 TFLOP, CogVLM's some 27.
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
    """Return the shape of a model; at ``size`` 'toy' the smallest shape of the same kind."""
    return VLMS[name] if size == "real" else TOYS[VLMS[name].tower.merge]
