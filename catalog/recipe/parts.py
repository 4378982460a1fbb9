"""Declare the sections of a recipe as typed settings with descriptions, which the Prefect form shows.

The defaults are RealSyn's figures (arXiv 2502.12513) where the paper gives any.
"""

import string
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SerializerFunctionWrapHandler,
    field_validator,
    model_serializer,
    model_validator,
)

from pairmill.catalog.recipe.calibration import THRESHOLD, compared, filled
from pairmill.catalog.recipe.predicate import columns_of
from pairmill.catalog.recipe.whole_number import WholeNumber
from pairmill.catalog.terms.backend import OTHER_PREFIXES, declared_backends
from pairmill.catalog.terms.error import BadPredicate

# Names under which the cut itself drops an image or a sentence; no rule may use them.
RESERVED = frozenset({"readable", "exact_duplicate", "duplicate", "no_text", "balance", "max_uses", "same_text"})
USUAL_CAP = 35  # RealSyn's cap for its 30M dataset
USUAL_ENCODING = "jpeg-90"  # an image of 448 pixels takes about 50 kB; PNG takes 300 kB
FUSE_FIELDS = ("caption", "tags", "sentence")
CAPTION_PROMPT = "Describe this image in one or two plain sentences. Name what can be seen; guess nothing."
# For an instruct model of a few billion weights: the inputs, one per line, then the instruction.
FUSE_PROMPT = (
    "Caption of a picture: {caption}\nTags: {tags}\nA sentence that may be about it: {sentence}\n"
    "Write one fluent text of one or two sentences that describes the picture. Keep what the caption says is seen. "
    "Take names and details from the rest only where they agree with it. Invent nothing. "
    "Answer with the text alone, without a heading or remarks."
)
# Upper limit of counts: more than any table has rows, and within BIGINT. A larger count is a typing error.
MOST = 10**12
# Marks a setting that no shipped recipe has (flows/recipes), so that a form can show the common ones first.
ADVANCED: dict[str, JsonValue] = {"advanced": True}
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]


def _model_spec(spec: str) -> str:
    """Validate the prefix of a model spec. Raise ValueError with the accepted forms."""
    if not spec.startswith((*OTHER_PREFIXES, *declared_backends())) or spec.endswith((":", "/")):
        raise ValueError(
            f"'{spec}' names no model; write open_clip:MODEL/PRETRAINED, open_clip:local-dir:FOLDER, hf:NAME, "
            "hf:FOLDER, spacy:NAME, spacy:FOLDER or http:NAME@https://host:8000/v1"
        )
    return spec


ModelSpec = Annotated[str, AfterValidator(_model_spec)]


class Settings(BaseModel):
    """Base of all recipe sections: an unknown key is an error, and instances are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Calibrate(Settings):
    """Set a rule's threshold by the share of items to drop.

    The threshold is computed once, over the items that reach the rule, and then frozen in the lake.
    """

    drop: float = Field(
        gt=0,
        lt=1,
        description="Largest share to drop; less only if values are equal.",
        json_schema_extra=ADVANCED,
    )
    threshold: float | None = Field(
        None,
        allow_inf_nan=False,
        description="The calibrated number, which a version's recipe records. If set, `drop` is ignored.",
        json_schema_extra=ADVANCED,
    )


class Rule(Settings):
    """One named predicate. An item for which the predicate is false or NULL is dropped under the rule's name."""

    name: Name = Field(description="Named in `decisions.dropped_by` and in the funnel.")
    keep: str = Field(description="A boolean SQL expression over score columns: `least(width, height) >= 100`.")
    calibrate: Calibrate | None = Field(
        None,
        description="Sets `{threshold}` in `keep`, one comparison such as `corpus_entropy >= {threshold}`.",
        json_schema_extra=ADVANCED,
    )

    @property
    def predicate(self) -> str:
        """``keep`` with its threshold substituted; NULL if a calibrated rule has no threshold yet."""
        return self.keep if self.calibrate is None else filled(self.keep, self.calibrate.threshold)

    @property
    def remark(self) -> str:
        """The requested share of a calibrated rule as an SQL comment, shown beside the threshold; else ''."""
        return "" if self.calibrate is None else f" -- calibrate: {{drop: {self.calibrate.drop:g}}}"

    def at(self, threshold: float) -> Self:
        """Return a copy of the calibrated rule with ``threshold`` set."""
        assert self.calibrate is not None
        return self.model_copy(update={"calibrate": self.calibrate.model_copy(update={"threshold": threshold})})

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict:
        """Omit ``calibrate`` when unset, so that digests and records older than this setting stay valid."""
        content = write(self)
        return {name: value for name, value in content.items() if name != "calibrate" or value is not None}

    @field_validator("keep", mode="before")
    @classmethod
    def _from_yaml(cls, value: object) -> object:
        """Convert a YAML boolean to SQL text: ``keep: true`` means the SQL literal."""
        return str(value).lower() if isinstance(value, bool) else value

    @model_validator(mode="after")
    def _is_scalar(self) -> Self:
        """Refuse a reserved name, ``{threshold}`` without ``calibrate``, and a non-scalar predicate."""
        if self.name in RESERVED:
            raise ValueError(f"'{self.name}' names a step of the cut itself; call the rule something else")
        if THRESHOLD in self.keep and self.calibrate is None:
            raise ValueError(f"what sets {THRESHOLD}? Write `calibrate: {{drop: 0.15}}` beside it, or a number")
        try:
            columns_of(self.name, self.predicate)
            if self.calibrate is not None:
                compared(self.name, self.keep)
        except BadPredicate as error:
            raise ValueError(str(error)) from error
        return self


class Duplicates(Settings):
    """Settings for finding duplicate images. The best surviving member of each group is kept."""

    clusters: int = Field(
        1_000_000, ge=1, le=MOST, description="Clusters of pictures, fewer when there are few pictures."
    )
    per_cluster: int = Field(
        40,
        ge=1,
        le=MOST,
        description="Pictures to a cluster, or more where there are too few clusters.",
        json_schema_extra=ADVANCED,
    )
    phash: int = Field(4, ge=0, le=16, description="Largest Hamming distance of two 64-bit perceptual hashes.")
    cosine: float = Field(0.96, gt=0, le=1, description="Smallest cosine of two image embeddings.")
    max_group: int = Field(
        1000,
        ge=2,
        le=MOST,
        description="A larger group is cut again by tighter edges, and reported.",
        json_schema_extra=ADVANCED,
    )
    probes: int = Field(
        2,
        ge=1,
        le=MOST,
        description="Nearest image clusters searched for near copies of a picture.",
        json_schema_extra=ADVANCED,
    )

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict:
        """Omit cluster settings at their defaults, so that digests and records older than these settings stay valid."""
        later = ("clusters", "per_cluster")
        usual = {name for name in later if getattr(self, name) == type(self).model_fields[name].default}
        return {name: value for name, value in write(self).items() if name not in usual}


class SentenceDuplicates(Settings):
    """Settings for finding duplicate sentences.

    Of each group, the sentence with the smallest content id among those that pass the rules represents the group:
    images get this sentence in place of any other member. The others are dropped as `duplicate`.
    """

    jaccard: float = Field(
        0.8, ge=0.5, le=1, description="Smallest share of character 3-grams that two sentences have in common."
    )
    cosine: float | None = Field(
        0.95, gt=0, le=1, description="Smallest cosine of two sentence embeddings; null: only strings are compared."
    )
    max_group: int = Field(
        1000,
        ge=2,
        le=MOST,
        description="A larger group is cut again by tighter edges, and reported.",
        json_schema_extra=ADVANCED,
    )


class Association(Settings):
    """Settings for retrieving sentences for images."""

    clusters: int = Field(
        2_000_000, ge=1, le=MOST, description="Sentence clusters; fewer when there are few sentences."
    )
    per_cluster: int = Field(
        420, ge=1, le=MOST, description="Sentences to a cluster, or more: RealSyn has 0.84 billion in 2 million."
    )
    probes: int = Field(1, ge=1, le=MOST, description="Nearest sentence clusters searched for each picture.")
    recall: float | None = Field(
        None,
        gt=0,
        le=1,
        description="In the place of probes: the fewest probes that find this share of the exact top_k, measured on "
        "a sample of the lake's own pictures.",
    )
    top_k: int = Field(3, ge=1, le=3, description="Sentences a picture gets at most: text1 to text3.")
    max_uses: int | None = Field(
        None, ge=1, le=MOST, description="Pictures that may share one sentence; none: any number, as in RealSyn."
    )
    retrain_at: float = Field(
        2.0,
        gt=1,
        description="Clusters are trained anew once there are this many times the rows of their training.",
        json_schema_extra=ADVANCED,
    )

    @model_validator(mode="before")
    @classmethod
    def _probes_once(cls, given: object) -> object:
        """Refuse `probes` together with `recall`."""
        if isinstance(given, dict) and given.get("probes") is not None and given.get("recall") is not None:
            raise ValueError("`probes` and `recall` both say how many clusters are searched; leave one of them out")
        return given

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict:
        """Omit `recall` when unset, so that digests older than it stay valid, and `probes` when `recall` is set."""
        unused = "recall" if self.recall is None else "probes"
        return {name: value for name, value in write(self).items() if name != unused}


class Balance(Settings):
    """Settings for limiting the images per cluster, so that no kind of image dominates: a cap, or a total to keep.

    Without either setting the cap is 35 images per cluster.
    """

    clusters: int = Field(
        1_000_000, ge=1, le=MOST, description="Clusters of pictures, fewer when there are few pictures."
    )
    per_cluster: int = Field(
        168, ge=1, le=MOST, description="Pictures to a cluster, or more: RealSyn has 168.3 million in 1 million."
    )
    cap: int | None = Field(
        None, ge=1, le=MOST, description="Pictures kept of each cluster: RealSyn has 20, 35, 180 for 15M, 30M, 100M."
    )
    target: WholeNumber | None = Field(
        None,
        description="Pictures to keep in all, 30M say, in the place of a cap: the smallest cap that reaches it.",
        json_schema_extra=ADVANCED,
    )

    @model_validator(mode="before")
    @classmethod
    def _has_a_cap(cls, given: object) -> object:
        """Add the default cap if neither `cap` nor `target` is set."""
        if isinstance(given, dict) and given.get("cap") is None and given.get("target") is None:
            return {**given, "cap": USUAL_CAP}
        return given

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        """Refuse `cap` together with `target`."""
        if self.cap is not None and self.target is not None:
            raise ValueError("`cap` and `target` both say how many pictures are kept; leave one of them out")
        return self

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict:
        """Omit whichever of `cap` and `target` is unset, so that digests older than `target` stay valid."""
        return {name: value for name, value in write(self).items() if value is not None}


class Captioner(Settings):
    """A vision-language model that describes the images that the recipe keeps."""

    name: Name = Field("main", description="Stored with each caption.")
    model: str = Field("captioner", description="A key of `models`.")
    prompt: str = Field(CAPTION_PROMPT, min_length=1, description="What the model is asked.")
    max_tokens: int = Field(128, ge=1, le=4096, description="The longest caption, in the model's tokens.")
    side: int = Field(448, ge=32, le=2048, description="Shorter side of the picture shown to the model, in pixels.")
    precision: Literal["fp32", "bf16"] = Field("bf16", description="bf16 halves the memory and is fast on GPUs.")
    batch_size: int = Field(16, ge=1, le=MOST, description="Placement: it changes the speed, not the digest.")
    encoding: str = Field(
        USUAL_ENCODING,
        pattern=r"^(png|jpeg-([1-9][0-9]?|100))$",
        description="How pictures are sent to a model behind an endpoint: png, or jpeg-90 for that quality.",
        json_schema_extra=ADVANCED,
    )
    weight: float = Field(
        1.0,
        ge=0,
        le=1e6,
        description="For `captions.choose: mixture`: with 3 beside 1 it describes three of four pictures.",
        json_schema_extra=ADVANCED,
    )

    @model_serializer(mode="wrap")
    def _as_before(self, write: SerializerFunctionWrapHandler) -> dict:
        """Omit settings at their defaults, so that digests and records older than these settings stay valid."""
        usual = {"encoding": USUAL_ENCODING, "weight": 1.0}
        return {name: value for name, value in write(self).items() if name not in usual or value != usual[name]}


class Captions(Settings):
    """Settings for choosing an image's caption among the texts of several captioners.

    Rules read this caption, fusion uses it, and `pairs` stores it.
    """

    choose: Literal["first", "best", "mixture"] = Field(
        "first",
        description="first: the first captioner's. best: of the texts with status ok the one that fits the picture "
        "best by CLIP, the earlier captioner's where two fit equally. mixture: of one captioner a picture, drawn by "
        "the picture, the seed and the captioners' weights.",
        json_schema_extra=ADVANCED,
    )
    ask: Literal["chosen", "every"] = Field(
        "chosen",
        description="For mixture: every has all captioners describe every picture, for `export --captions all`, where "
        "chosen asks the drawn one alone. With first and best every one is asked.",
        json_schema_extra=ADVANCED,
    )

    @model_validator(mode="after")
    def _asks_of_a_mixture(self) -> Self:
        """Refuse `ask: every` unless `choose` is mixture: otherwise every captioner is asked anyway."""
        if self.ask == "every" and self.choose != "mixture":
            raise ValueError(f"`choose: {self.choose}` asks every captioner anyway; leave `ask` out")
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
    side: int = Field(
        448,
        ge=32,
        le=2048,
        description="Shorter side of the picture in pixels, for models that see.",
        json_schema_extra=ADVANCED,
    )
    precision: Literal["fp32", "bf16"] = Field("bf16", description="bf16 halves the memory and is fast on GPUs.")
    batch_size: int = Field(16, ge=1, le=MOST, description="Placement: it changes the speed, not the digest.")

    @field_validator("prompt")
    @classmethod
    def _knows_fields(cls, value: str) -> str:
        """Refuse a prompt with no field of FUSE_FIELDS, with any other field, or with a format or conversion."""
        parts = [part[1:] for part in string.Formatter().parse(value) if part[1] is not None]
        if not parts or any(form or conversion or field not in FUSE_FIELDS for field, form, conversion in parts):
            raise ValueError("may hold {caption}, {tags} and {sentence}, at least one of them and no other braces")
        return value


class Words(Settings):
    """Source of the word probabilities that ``corpus_entropy`` is computed with."""

    counts: str = Field(
        "",
        description="Empty: the lake's own words. Else a file of counts (Parquet with word, n; or lines "
        "'word<TAB>count'), or wordfreq:LANGUAGE where that package is installed.",
        json_schema_extra=ADVANCED,
    )
    refresh_at: float = Field(
        2.0,
        gt=1,
        description="Own words are counted anew once there are this many times the sentences counted.",
        json_schema_extra=ADVANCED,
    )


class Ingest(Settings):
    """Settings for reading sources into rows."""

    documents_per_shard: int = Field(
        1000, ge=1, le=MOST, description="Documents per shard, the unit of work and of resuming."
    )
    language: str = Field(
        "en",
        min_length=2,
        max_length=8,
        description="For splitting texts into sentences; changed, all is read again.",
        json_schema_extra=ADVANCED,
    )
    max_pixels: int = Field(
        100_000_000,
        ge=1,
        le=MOST,
        description="A larger picture is quarantined as a bomb, undecoded.",
        json_schema_extra=ADVANCED,
    )
    max_bytes: int = Field(
        50_000_000, ge=1, le=MOST, description="A larger file is quarantined as too_large.", json_schema_extra=ADVANCED
    )
    payload: Literal["copy", "reference"] = Field(
        "copy",
        description="reference leaves pictures in the source's own files and plain tars, which must then last as long "
        "as the lake; what is packed, in a table or on the web is copied.",
        json_schema_extra=ADVANCED,
    )


class Fetch(Settings):
    """Settings for fetching images that documents only link to.

    Limits change the speed, never which images are fetched.
    """

    connections: int = Field(64, ge=1, le=10_000, description="Connections at once, of all workers together.")
    per_host: int = Field(8, ge=1, le=1000, description="Connections at once to one host, of all workers together.")
    seconds: float = Field(20.0, gt=0, le=600, description="For one attempt at an address, its redirects included.")
    retries: int = Field(2, ge=0, le=10, description="More attempts after time-outs, lost connections, 429 and 5xx.")
    banned: list[str] | str = Field(
        [],
        description="Hosts (with their subdomains) or beginnings of addresses never asked; or a file, one per line.",
        json_schema_extra=ADVANCED,
    )


class Decoding(Settings):
    """Settings for decoding images, once for all image scorers."""

    side: int = Field(224, ge=32, le=1024, description="The shorter side after decoding, in pixels: what CLIP takes.")
    mode: Literal["exact", "scaled"] = Field(
        "exact", description="scaled reduces JPEGs while decoding: faster.", json_schema_extra=ADVANCED
    )


class ClipSettings(Settings):
    """Settings for computing CLIP embeddings."""

    precision: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="bf16 is two to five times as fast on CPUs with bf16 instructions, three times slower on others.",
    )
    batch_size: int = Field(
        64, ge=1, le=MOST, description="Placement: it changes the speed, not the digest.", json_schema_extra=ADVANCED
    )
