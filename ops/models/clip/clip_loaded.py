"""Load the weights of a CLIP model and run them; the part of clip.py that imports torch."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F

from pairmill.ops.models.device.device import device, dtype, exact_inference, once, placed
from pairmill.ops.models.device.failures import first_line, is_broken, is_no_room
from pairmill.ops.models.device.row_batches import RowBatches, text_batches, token_batches
from pairmill.ops.models.device.run_notes import note
from pairmill.ops.models.model_digest import ModelError, resolve, split_open_clip

# Tokenize this many batches of sentences together and sort them by length, so that a batch has similar lengths.
TEXT_BATCHES = 16
# A sentence of 20 words, of which a GPU's batches are measured: others have as many tokens, not as many sentences.
USUAL_SENTENCE = " ".join(f"word{n}" for n in range(20))
# Parts of a text tower that can be truncated.
TEXT_PARTS = ("transformer", "token_embedding", "positional_embedding", "attn_mask", "ln_final", "text_projection")
# Classes of open_clip and timm. Convolutional blocks have too many shapes for one graph.
BLOCKS = ("ResidualAttentionBlock", "CustomResidualAttentionBlock", "Block", "EvaBlock", "EvaBlockPostNorm")
# Least cosine of a vector and that of the plain towers. In bf16, other roundings give 0.9999.
LEAST_COSINE = 0.999


class TextTower:
    """The text tower of an open_clip ``model``, run at the length of its longest sentence instead of its full context.

    Under a causal mask a token attends only to tokens before it, and a sentence's vector is read at its end token.
    Padding after the batch's last end token therefore changes no vector: truncating it is exact (to rounding) and makes
    short sentences up to 5 times cheaper. A bidirectional tower, or one that reads another token, is not
    ``is_truncatable`` and gets the full context. A tower of transformers masks its padding: it is run at the batch's
    longest sentence too.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self.tower = model.text if hasattr(model, "text") else model
        self.pool = getattr(self.tower, "text_pool_type", getattr(self.tower, "pool_type", ""))
        self.end = getattr(self.tower, "text_eos_id", getattr(self.tower, "eos_id", None))
        self.is_truncatable = self._can_be_cut()
        # The id of the padding after a sentence, in open_clip's adapter of transformers' towers; None for other towers.
        masks = type(self.tower).__name__ == "HFTextEncoder"
        self.padding: int | None = self.tower.config.pad_token_id if masks else None

    def encode(self, tokens: torch.Tensor) -> torch.Tensor:
        """Encode token ids (n, context) to features (n, d), not normalised, in the model's own float type.

        Pass ``tokens`` on the CPU: the batch's length is read from them, and reading from a device would wait for it.
        """
        device = self.model.logit_scale.device
        if self.padding is not None:
            tokens = tokens[:, : int(self.ends(tokens).max()) + 1]
        if not self.is_truncatable:
            return self.model.encode_text(tokens.to(device))
        tower, ends = self.tower, self.ends(tokens)
        length = int(ends.max()) + 1
        tokens, ends = tokens[:, :length].to(device, non_blocking=True), ends.to(device, non_blocking=True)
        kind = tower.transformer.get_cast_dtype()
        hidden = tower.token_embedding(tokens).to(kind) + tower.positional_embedding[:length].to(kind)
        hidden = tower.transformer(hidden, attn_mask=tower.attn_mask[:length, :length])
        # The norm works per token, so only the end tokens need it.
        features = tower.ln_final(hidden[torch.arange(len(tokens), device=device), ends])
        if (projection := tower.text_projection) is None:
            return features
        return projection(features) if isinstance(projection, torch.nn.Module) else features @ projection

    def ends(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the position (n,) of the token at which each sentence's vector is read.

        If the tower cannot be truncated, the position is only a sort key.
        """
        if self.pool == "eos":
            return (tokens == self.end).int().argmax(dim=-1)
        if self.padding is not None:
            return tokens.shape[1] - 1 - (tokens != self.padding).flip(1).int().argmax(dim=-1)
        return tokens.argmax(dim=-1)  # CLIP's end token has the highest id

    def _can_be_cut(self) -> bool:
        """Return whether this is open_clip's own causal transformer, read at the end token, without a class token."""
        tower = self.tower
        if not all(hasattr(tower, name) for name in TEXT_PARTS) or getattr(tower, "cls_emb", None) is not None:
            return False
        mask = tower.attn_mask
        if mask is None or self.pool not in ("argmax", "eos") or getattr(tower, "use_pad_mask", False):
            return False
        return bool(torch.isneginf(mask).triu(1).sum() == mask.shape[0] * (mask.shape[0] - 1) // 2)


class LoadedClip:
    """The weights of a CLIP model in this process, with the model's own preprocessing."""

    def __init__(self, model: Any, tokenizer: Any, kind: torch.dtype) -> None:
        self.model, self.tokenizer, self.kind = model, tokenizer, kind
        self.text, self.device = TextTower(model), device()
        settings = model.visual.preprocess_cfg
        size = settings["size"]
        self.image_size = int(min(size) if isinstance(size, (list, tuple)) else size)
        self.resize_mode, self.interpolation = settings["resize_mode"], settings["interpolation"]
        self.fill = int(settings["fill_color"])
        # The division by 255 is folded in: one subtraction and one multiplication per pixel, on the device.
        self.mean = torch.tensor(settings["mean"], device=self.device).view(3, 1, 1) * 255
        self.scale = 1 / (torch.tensor(settings["std"], device=self.device).view(3, 1, 1) * 255)
        self.dimension = int(self.embed_tokens(tokenizer(["a"])).shape[1])
        self.usual_tokens = int(self.text.ends(tokenizer([USUAL_SENTENCE]))[0]) + 1

    def prepare_pictures(self, pictures: list[np.ndarray], batch_size: int) -> RowBatches:
        """Resize images (h, w, 3) uint8 to the model's side s and stack them to batches (n, 3, s, s) uint8.

        On a GPU the batches are in pinned memory.
        """
        found = []
        for start in range(0, len(pictures), batch_size):
            fitted = torch.stack([self.fit(picture) for picture in pictures[start : start + batch_size]])
            fitted = fitted.pin_memory() if self.device.type == "cuda" else fitted
            found.append((list(range(start, start + len(fitted))), fitted))
        return RowBatches(len(pictures), found)

    def prepare_sentences(self, texts: list[str], batch_size: int) -> RowBatches:
        """Tokenize sentences into batches of similar length.

        A batch has ``batch_size`` rows on a CPU, and as many tokens as ``batch_size`` usual sentences on a GPU. Its
        rows are padded to its longest sentence, unless the tower always reads its full context.
        """
        found = []
        chunk = TEXT_BATCHES * batch_size
        for start in range(0, len(texts), chunk):
            tokens = self.tokenizer(texts[start : start + chunk])
            lengths = (self.text.ends(tokens) + 1).tolist()
            if self.device.type == "cuda" and self.text.is_truncatable:
                batches = token_batches(lengths, batch_size * self.usual_tokens)
            else:
                batches = text_batches(lengths, batch_size)
            found += [([start + row for row in rows], tokens[rows]) for rows in batches]
        return RowBatches(len(texts), found)

    def fit(self, picture: np.ndarray) -> torch.Tensor:
        """Fit an image (h, w, 3) to (3, s, s) uint8: resize ('shortest', 'longest' or 'squash'), then crop or pad."""
        side, (height, width) = self.image_size, picture.shape[:2]
        if self.resize_mode == "squash":
            target = (side, side)
        else:
            # Round as open_clip does: down for 'shortest', to the nearest for 'longest'.
            against, whole = (min, int) if self.resize_mode == "shortest" else (max, round)
            against = against(height, width)
            target = (max(1, whole(side * height / against)), max(1, whole(side * width / against)))
        image = torch.from_numpy(np.ascontiguousarray(picture)).permute(2, 0, 1)
        if target != (height, width):
            mode = self.interpolation if self.interpolation in ("bicubic", "bilinear") else "bicubic"
            image = F.interpolate(image[None], size=target, mode=mode, antialias=True, align_corners=False)[0]
        top, left = round((target[0] - side) / 2), round((target[1] - side) / 2)
        if min(target) < side:
            pad_y, pad_x = max(0, -top), max(0, -left)
            around = (pad_x, max(0, side - target[1] - pad_x), pad_y, max(0, side - target[0] - pad_y))
            image, top, left = F.pad(image, around, value=self.fill), max(0, top), max(0, left)
        return image[:, top : top + side, left : left + side]

    def embed_images(self, images: torch.Tensor) -> torch.Tensor:
        """Embed images (n, 3, s, s) uint8 as (n, d) float32 of length 1, on the device."""
        with exact_inference():
            scaled = (images.to(self.device, non_blocking=True).float() - self.mean) * self.scale
            return F.normalize(self.model.encode_image(scaled.to(self.kind)).float(), dim=-1)

    def embed_tokens(self, tokens: torch.Tensor) -> torch.Tensor:
        """Embed token ids (n, context) as (n, d) float32 of length 1, on the device."""
        with exact_inference():
            return F.normalize(self.text.encode(tokens).float(), dim=-1)

    def embed_examples(self) -> torch.Tensor:
        """Embed two noise pictures and two sentences as (4, d) float32, to compare compiled and plain towers."""
        side, seed = self.image_size, torch.Generator().manual_seed(0)
        noise = torch.randint(0, 256, (2, 3, side, side), dtype=torch.uint8, generator=seed)
        return torch.cat([self.embed_images(noise), self.embed_tokens(self.tokenizer(["a dog", USUAL_SENTENCE]))])


def compile_towers(model: Any, embed: Callable[[], torch.Tensor]) -> None:
    """Compile the blocks of both towers; undo it, with a note, if it fails or changes vectors by more than rounding.

    Between its products, a block reads and writes its state some ten times: norms, biases, residuals, activations. By a
    sum over its operations these are 35 % of ViT-L-14's time, quick GELU alone 24 %. The gain of compiling is not yet
    measured on a card. Only whole blocks are compiled: torch.compile skips a bare nn.Sequential, which open_clip uses
    for its feed-forward parts. All blocks of a tower share one compiled graph.

    ``embed`` returns vectors (n, d) of length 1 of the same pictures and sentences at each call.
    """
    blocks = [part for part in model.modules() if type(part).__name__ in BLOCKS]
    plain = embed()
    for block in blocks:
        block.compile(dynamic=True)
    try:
        cosine = float((embed() * plain).sum(-1).min())
        why = "" if cosine >= LEAST_COSINE else f"a trial gave other vectors, of cosine {cosine:.4f}"
    except Exception as error:  # anything missing in the tool chain, a compiler's own errors
        if is_broken(error) or is_no_room(error):
            raise
        why = first_line(error)
    if why:
        for block in blocks:
            block._compiled_call_impl = None  # what nn.Module.compile sets; it has no inverse
        note(f"CLIP runs uncompiled, which is slower: {why}")


@once
def load(spec: str, precision: str) -> LoadedClip:
    """Load the CLIP model, once per process. Raises ModelError with the remedy if it is missing or damaged."""
    return _load(spec, precision)


def _load(spec: str, precision: str) -> LoadedClip:
    kind = dtype(precision)
    name, pretrained = _open_clip_name(spec)
    import open_clip

    try:
        with _create_as(kind):  # EVA02-E-14-plus takes 20 GB of the host in fp32, 10 in bf16
            own = _own_text_config(name)
            model = open_clip.create_model(name, pretrained, require_pretrained=True, pretrained_text=False, **own)
        tokenizer = open_clip.get_tokenizer(name)
    except Exception as error:  # a damaged checkpoint, a config of another model, a missing tokenizer
        raise ModelError(f"model '{spec}' does not load: {error}; check its config and weights") from error
    loaded = LoadedClip(placed(model.eval(), spec, kind), tokenizer, kind)
    if loaded.device.type == "cuda":  # on a CPU results repeat exactly, on any machine
        compile_towers(loaded.model, loaded.embed_examples)
    return loaded


@once
def load_tower(spec: str, precision: str, side: Literal["text", "image"]) -> LoadedClip:
    """Load the CLIP model and keep only one of its towers, once per process. Raises ModelError as `load` does."""
    loaded = _load(spec, precision)
    model = loaded.model
    if side == "text":
        model.visual = None
    elif hasattr(model, "text"):
        model.text = None
    else:  # open_clip's first class holds the text tower in parts
        model.transformer = model.token_embedding = None
    loaded.text.tower = None if side == "image" else loaded.text.tower
    return loaded


@contextmanager
def _create_as(kind: torch.dtype) -> Iterator[None]:
    """Convert each parameter to ``kind`` once a module has it; buffers stay in fp32: rounded later they are exact."""
    modules: Any = torch.nn.Module
    register = modules.register_parameter

    def registered(module: torch.nn.Module, name: str, parameter: torch.nn.Parameter | None) -> None:
        if parameter is not None and parameter.is_floating_point():
            parameter.data = parameter.data.to(kind)
        register(module, name, parameter)

    modules.register_parameter = registered
    try:
        yield
    finally:
        modules.register_parameter = register


def _own_text_config(name: str) -> dict[str, Any]:
    """Return open_clip's arguments for a 'local-dir:' folder that holds its text tower's config; {} for other models.

    A text tower of transformers is built from the config of ``hf_model_name``. The name '.' means the folder itself,
    wherever it lies: open_clip would look for it in the working folder.
    """
    folder = Path(name.removeprefix("local-dir:"))
    if not name.startswith("local-dir:"):
        return {}
    text = json.loads((folder / "open_clip_config.json").read_bytes())["model_cfg"]["text_cfg"]
    if text.get("hf_model_name") != ".":
        return {}
    return {"text_cfg": text | {"hf_model_name": str(folder), "hf_model_pretrained": False}}


def _open_clip_name(spec: str) -> tuple[str, str | None]:
    """Return the (name, pretrained) arguments of open_clip, once the weights are found. Raises ModelError."""
    if not spec.startswith("open_clip:"):
        raise ModelError(f"model '{spec}': a CLIP must be an open_clip model; write 'open_clip:MODEL/PRETRAINED'")
    path = resolve(spec)
    name = spec.removeprefix("open_clip:")
    if name.startswith("local-dir:"):
        return f"local-dir:{path}", None
    # Pass a pretrained tag on as a tag: open_clip reads mean, deviation and resize mode from it.
    return (name, None) if name.startswith("hf-hub:") else split_open_clip(spec)
