"""Declare the sections of a recipe for generated texts: captioners, the choice of captions, tags and fusion."""

import string
from collections import Counter
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from pairmill.catalog.recipe.parts import Advanced, Count, Name, ScoreName, Settings

USUAL_ENCODING = "jpeg-90"  # an image of 448 pixels takes about 50 kB; PNG takes 300 kB
CHOSEN_BY = "caption_similarity"
FUSE_FIELDS = ("caption", "tags", "sentence")
CAPTION_PROMPT = "Describe this image in one or two plain sentences. Name what can be seen; guess nothing."
# For an instruct model of a few billion weights: the inputs, one per line, then the instruction.
FUSE_PROMPT = (
    "Caption of a picture: {caption}\nTags: {tags}\nA sentence that may be about it: {sentence}\n"
    "Write one fluent text of one or two sentences that describes the picture. Keep what the caption says is seen. "
    "Take names and details from the rest only where they agree with it. Invent nothing. "
    "Answer with the text alone, without a heading or remarks."
)


class Pictures(Settings):
    """How a model that runs here is shown a picture; a setting that is left out is the model's own."""

    tiles: int | None = Field(
        None,
        ge=1,
        le=64,
        description="Most pieces that a picture is cut into, each of which costs tokens; 1 cuts none.",
    )
    longest_edge: Advanced[int | None] = Field(
        None, ge=32, le=8192, description="Longest edge that the model sees, in pixels."
    )
    min_pixels: Advanced[int | None] = Field(
        None,
        ge=1,
        le=100_000_000,
        description="Smallest area that the model sees, in pixels, for models of the Qwen kind.",
    )
    max_pixels: Advanced[int | None] = Field(
        None,
        ge=1,
        le=100_000_000,
        description="Largest area that the model sees, in pixels, for models of the Qwen kind.",
    )


class Captioner(Settings):
    """A vision-language model that describes the images that the recipe keeps."""

    name: Name = Field("main", description="Stored with each caption.")
    model: str = Field("captioner", description="A key of `models`.")
    prompt: str = Field(CAPTION_PROMPT, min_length=1, description="What the model is asked.")
    max_tokens: int = Field(128, ge=1, le=4096, description="The longest caption, in the model's tokens.")
    side: int = Field(448, ge=32, le=2048, description="Shorter side of the picture shown to the model, in pixels.")
    processor: Pictures = Field(
        Pictures.model_validate({}),
        description="Tiles and sizes of pictures, for models that run here: {tiles: 1} shows a picture whole.",
    )
    precision: Literal["fp32", "bf16"] = Field("bf16", description="bf16 halves the memory and is fast on GPUs.")
    batch_size: Count = Field(16, description="Placement: it changes the speed, not the digest.")
    encoding: Advanced[str] = Field(
        USUAL_ENCODING,
        pattern=r"^(png|jpeg-([1-9][0-9]?|100))$",
        description="How pictures are sent to a model behind an endpoint: png, or jpeg-90 for that quality.",
    )


OWN = "own"  # the captioner's name of captions that came along with the pictures


class Captions(Settings):
    """Settings for choosing an image's caption among the texts of several captioners.

    Rules read this caption, fusion uses it, and `pairs` stores it.
    """

    choose: Advanced[Literal["first", "best", "mixture"]] = Field(
        "first",
        description="first: the first captioner's. best: of the texts with status ok the one that fits the picture "
        "best by CLIP or `by`, the earlier captioner's where two fit equally. mixture: of one captioner a picture, "
        "drawn by the picture and the seed; the others are not asked about it.",
    )
    by: Advanced[ScoreName] = Field(
        CHOSEN_BY,
        description="For best: the score of a picture with its caption that is the highest, such as caption_itm_score.",
    )

    own: Advanced[Literal["keep", "fill", "compare"] | None] = Field(
        None,
        description="Captions that came along with pictures (`.txt`, `.json`, a column) are captions, not sentences. "
        "keep: they alone. fill: the captioner describes the pictures without one. compare: the better of both, by "
        "CLIP or `by`. Left out: they are sentences for all pictures.",
    )

    @property
    def way(self) -> Literal["first", "best", "mixture", "fill"]:
        """How an image's caption is chosen: as ``choose`` says, unless ``own`` decides."""
        if self.own is None:
            return self.choose
        return "fill" if self.own == "fill" else "best" if self.own == "compare" else "first"

    @model_validator(mode="after")
    def _compares_for_the_best(self) -> Self:
        """Refuse `by` unless captions are compared, and `choose` beside `own`."""
        if self.own and self.choose != "first":
            raise ValueError(f"`own: {self.own}` chooses the caption; leave `choose` out, or `own`")
        if self.by != CHOSEN_BY and self.way != "best":
            raise ValueError(f"`choose: {self.choose}` compares no captions by `{self.by}`; write `choose: best`")
        return self


class Tags(Settings):
    """Settings for labelling images zero-shot with CLIP: `models.tagger` if the recipe names it, else `models.clip`."""

    vocabulary: list[str] | str = Field(
        description="The words, a file with one per line, or imagenet: the names of its 1,000 classes."
    )
    mined: int = Field(
        0, ge=0, le=100_000, description="Nouns and noun phrases to add that the sentences use and CLIP knows."
    )
    template: str = Field("a photo of {}.", description="The sentence a word is put into.")
    top_k: int = Field(5, ge=1, le=100, description="Words kept of each picture, at most.")
    strict: float = Field(
        0.0,
        ge=0,
        lt=1,
        description="Share of second-best words that a threshold of each word's own drops, so that a picture may have "
        "none: 0.7, say. 0: no threshold, every picture has top_k words.",
    )

    @field_validator("vocabulary")
    @classmethod
    def _has_words(cls, value: list[str] | str) -> list[str] | str:
        """Validate a vocabulary given as a list; a file name or `imagenet` is resolved later."""
        return check_vocabulary(value) if isinstance(value, list) or not value else value

    @field_validator("template")
    @classmethod
    def _has_one_place(cls, value: str) -> str:
        """Refuse a template without exactly one {}."""
        if value.count("{}") != 1:
            raise ValueError("needs one {} where the word goes")
        return value

    @model_validator(mode="after")
    def _can_tell_apart(self) -> Self:
        """Refuse `strict` with a vocabulary of fewer than two words."""
        if isinstance(self.vocabulary, list) and len(self.vocabulary) < 2 and self.strict and not self.mined:
            raise ValueError("`strict` needs words to tell apart: give `vocabulary` two or more, or leave it out")
        return self


def check_vocabulary(words: Sequence[str]) -> list[str]:
    """Return the words of `tags` as a list. Raise ValueError for an empty list, an empty word or a repeated word."""
    if not words or not all(word.strip() for word in words):
        raise ValueError("holds no words, or an empty one")
    if twice := sorted(word for word, n in Counter(words).items() if n > 1):
        raise ValueError(f"holds {', '.join(twice[:5])} more than once; keep one of each")
    return list(words)


class Fuse(Settings):
    """Settings for fusing caption, tags and a retrieved sentence into one synthetic text with a model.

    A language model reads these texts alone; a vision-language model also sees the image. The model's own config says
    which kind it is.
    """

    model: str = Field("captioner", description="A key of `models`.")
    prompt: str = Field(FUSE_PROMPT, description="What the model is asked; may hold {caption}, {tags}, {sentence}.")
    max_tokens: int = Field(160, ge=1, le=4096, description="The longest text, in the model's tokens.")
    side: Advanced[int] = Field(
        448, ge=32, le=2048, description="Shorter side of the picture in pixels, for models that see."
    )
    precision: Literal["fp32", "bf16"] = Field("bf16", description="bf16 halves the memory and is fast on GPUs.")
    batch_size: Count = Field(16, description="Placement: it changes the speed, not the digest.")

    @field_validator("prompt")
    @classmethod
    def _knows_fields(cls, value: str) -> str:
        """Refuse a prompt with no field of FUSE_FIELDS, with any other field, or with a format or conversion."""
        parts = [part[1:] for part in string.Formatter().parse(value) if part[1] is not None]
        if not parts or any(form or conversion or field not in FUSE_FIELDS for field, form, conversion in parts):
            raise ValueError("may hold {caption}, {tags} and {sentence}, at least one of them and no other braces")
        return value
