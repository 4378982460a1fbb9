"""Declare the sections of a recipe as typed settings; `parts_of_texts.py` has those for generated texts.

Prefect's form shows their descriptions. The defaults are RealSyn's (arXiv 2502.12513) where the paper gives any.
"""

from typing import Annotated, Any, Literal, Self, TypeVar

import pydantic
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pairmill.catalog.recipe.predicate import columns_of
from pairmill.catalog.recipe.thresholds import THRESHOLD, compared_score, insert_threshold
from pairmill.catalog.terms import scores
from pairmill.catalog.terms.backend import OTHER_PREFIXES, declared_backends, forms
from pairmill.catalog.terms.error import BadPredicate
from pairmill.catalog.terms.text_columns import MOST as MOST_TEXTS
from pairmill.catalog.terms.text_columns import RELEASED

# Names under which the cut itself drops an image or a sentence; no rule may use them.
RESERVED = frozenset({"readable", "exact_duplicate", "duplicate", "no_text", "balance", "max_uses", "same_text",
                      "left_out"})  # fmt: skip
# Upper limit of counts: more than any table has rows, and within BIGINT. A larger count is a typing error.
MOST = 10**12
Count = Annotated[int, Field(ge=1, le=MOST)]
Share = Annotated[float, Field(gt=0, le=1)]
T = TypeVar("T")
# Marks a setting that no shipped recipe has (flows/recipes), so that a form can show the common ones first.
Advanced = Annotated[T, Field(json_schema_extra={"advanced": True})]
# The similarities of an image that a canary has too, because a retrieved sentence makes them.
RETRIEVED = frozenset({"match_similarity", "best_similarity"})
NONE = "none"  # a section or setting that is turned off, as users write it
Name = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
ScoreName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")]
ScorerDigest = Annotated[str, Field(pattern=r"^[0-9a-f]{8,32}$")]
ImportedName = Annotated[str, Field(pattern=scores.IMPORTED_NAME)]


def _model_spec(spec: str) -> str:
    """Validate the prefix of a model spec. Raise ValueError with the accepted forms."""
    if not spec.startswith((*OTHER_PREFIXES, *declared_backends())) or spec.endswith((":", "/")):
        others = ("open_clip:MODEL/PRETRAINED", "open_clip:local-dir:FOLDER", "spacy:NAME_OR_FOLDER")
        raise ValueError(f"'{spec}' names no model; write {forms(*others)}")
    return spec


ModelSpec = Annotated[str, pydantic.AfterValidator(_model_spec)]
USUAL_CAP = 35  # RealSyn's cap for its 30M dataset
Cap = Annotated[
    int | None,
    pydantic.BeforeValidator(lambda given: None if given == NONE else USUAL_CAP if given is None else given),
    pydantic.PlainSerializer(lambda cap: NONE if cap is None else cap),
]


class Settings(BaseModel):
    """Base of all recipe sections: an unknown key is an error, and instances are immutable.

    A digest leaves out every setting that equals its default, so a new setting keeps the digests of the recipes that
    do not have it. The default of a released setting therefore never changes.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    def unset(self) -> set[str]:
        """Return the names of the settings that records leave out: they are None by default and not set."""
        fields = type(self).model_fields
        return {name for name, field in fields.items() if field.default is None and getattr(self, name) is None}

    @pydantic.model_serializer(mode="wrap")
    def _without_unset(self, write: pydantic.SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise the section without its unset settings."""
        unset = self.unset()
        return {name: value for name, value in write(self).items() if name not in unset}


class Calibrate(Settings):
    """Set a rule's threshold by the share of items to drop, or by the share of wrong texts to accept.

    The threshold is computed once, over the items that reach the rule, and then frozen in the lake.
    """

    drop: Advanced[float | None] = Field(
        None, gt=0, lt=1, description="Largest share to drop; less only if values are equal."
    )
    wrong: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="In the place of drop: the share of deliberately wrong texts (canaries) that the rule may accept. "
        "With too few canaries the rule passes all.",
    )
    threshold: Advanced[float | None] = Field(
        None,
        allow_inf_nan=False,
        description="The calibrated number, which a version's recipe records. If set, `drop` and `wrong` are ignored.",
    )

    @property
    def asked(self) -> str:
        """The requested share as a recipe has it: ``drop: 0.15``."""
        return f"drop: {self.drop:g}" if self.drop is not None else f"wrong: {self.wrong:g}"

    @model_validator(mode="after")
    def _asks_for_one_share(self) -> Self:
        """Refuse a calibration by both shares or by none."""
        if (self.drop is None) == (self.wrong is None):
            raise ValueError(
                "write one of `drop` and `wrong`: a share of items to drop, or of wrong texts to accept; null is none"
            )
        return self


class Rule(Settings):
    """One named predicate. An item for which the predicate is false or NULL is dropped under the rule's name."""

    name: Name = Field(description="Named in `decisions.dropped_by` and in the funnel.")
    keep: str = Field(description="A boolean SQL expression over score columns: `least(width, height) >= 100`.")
    calibrate: Calibrate | None = Field(
        None, description="Sets `{threshold}` in `keep`, one comparison such as `corpus_entropy >= {threshold}`."
    )
    scorers: Advanced[dict[str, ScorerDigest] | None] = Field(
        None,
        description="Digests, by name, of the scorers that the number was calibrated on: a run with others is refused. "
        "`pairmill calibrate` prints them.",
    )

    @property
    def predicate(self) -> str:
        """The predicate ``keep`` with the rule's threshold inserted.

        A calibrated threshold not yet known is NULL, which no item passes, or infinite if canaries are to set it.
        """
        if self.calibrate is None:
            return self.keep
        passes_all = self.calibrate.wrong is not None
        return insert_threshold(self.name, self.keep, self.calibrate.threshold, passes_all)

    @property
    def remark(self) -> str:
        """The requested share of a calibrated rule as an SQL comment, shown beside the threshold; else ''."""
        return "" if self.calibrate is None else f" -- calibrate: {{{self.calibrate.asked}}}"

    def at(self, threshold: float) -> Self:
        """Return a copy of the calibrated rule with ``threshold`` set."""
        assert self.calibrate is not None
        return self.model_copy(update={"calibrate": self.calibrate.model_copy(update={"threshold": threshold})})

    @pydantic.field_validator("keep", mode="before")
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
        if THRESHOLD not in self.keep and self.calibrate is not None:
            raise ValueError(f"`calibrate` sets {THRESHOLD}, and `keep` has none; write `calibrate: null` for a number")
        try:
            columns_of(self.name, self.predicate)
            if self.calibrate is not None:
                score = columns_of(self.name, compared_score(self.name, self.keep).expression)
                if self.calibrate.wrong is not None and not score <= RETRIEVED:
                    raise ValueError(f"canaries have no {', '.join(sorted(score - RETRIEVED))}; `calibrate: {{wrong: "
                                     f"…}}` sets a rule on {' or '.join(sorted(RETRIEVED))}")  # fmt: skip
        except BadPredicate as error:
            raise ValueError(str(error)) from error
        return self


MaxGroup = Advanced[
    Annotated[int, Field(ge=2, le=MOST, description="A larger group is cut again by tighter edges, and reported.")]
]


class Duplicates(Settings):
    """Settings for finding duplicate images. The best surviving member of each group is kept.

    `duplicates: none` compares no images; then `phash` and `cosine` are None.
    """

    clusters: Count = Field(1_000_000, description="Clusters of pictures, fewer when there are few pictures.")
    per_cluster: Advanced[Count] = Field(
        40, description="Pictures to a cluster, or more where there are too few clusters."
    )
    phash: int | None = Field(
        4, ge=0, le=16, description="Largest Hamming distance of two 64-bit perceptual hashes; null: none are compared."
    )
    mirrored: Advanced[bool] = Field(
        False, description="Also compare the hash with those of mirrored pictures, drawings and signs left out."
    )
    cosine: Share | None = Field(0.96, description="Smallest cosine of two image embeddings; null: none are compared.")
    max_group: MaxGroup = 1000
    probes: Advanced[Count] = Field(2, description="Nearest image clusters searched for near copies of a picture.")

    @model_validator(mode="before")
    @classmethod
    def _may_be_none(cls, given: object) -> object:
        """Replace `duplicates: none` by the settings that compare nothing."""
        return {"phash": None, "cosine": None} if given == NONE else given

    @property
    def is_on(self) -> bool:
        """Whether images are compared at all."""
        return self.phash is not None or self.cosine is not None


class SentenceDuplicates(Settings):
    """Settings for finding duplicate sentences.

    Of each group, the sentence with the smallest content id among those that pass the rules represents the group:
    images get this sentence in place of any other member. The others are dropped as `duplicate`.
    """

    jaccard: float = Field(
        0.8, ge=0.5, le=1, description="Smallest share of character 3-grams that two sentences have in common."
    )
    cosine: Share | None = Field(
        0.95, description="Smallest cosine of two sentence embeddings; null: only strings are compared."
    )
    max_group: MaxGroup = 1000


class Association(Settings):
    """Settings for retrieving sentences for images.

    `association: none` retrieves none and scores no sentence; then `top_k` and `at_least` are 0.
    """

    clusters: Count = Field(2_000_000, description="Sentence clusters; fewer when there are few sentences.")
    per_cluster: Count = Field(
        420, description="Sentences to a cluster, or more: RealSyn has 0.84 billion in 2 million."
    )
    probes: Count = Field(1, description="Nearest sentence clusters searched for each picture.")
    recall: float | None = Field(
        None,
        gt=0,
        le=1,
        description="In the place of probes: the fewest probes that find this share of the exact top_k, measured on "
        "a sample of the lake's own pictures.",
    )
    rank_by: Advanced[ScoreName | None] = Field(
        None,
        description="A score of pairs, such as itm_score, by which a picture's retrieved sentences are ranked in the "
        "place of their cosines.",
    )
    top_k: int = Field(
        RELEASED,
        ge=0,
        le=MOST_TEXTS,
        description="Sentences a picture gets at most: text1 to text3, up to text5 with 5. RealSyn tries 1 to 5.",
    )
    at_least: Advanced[int] = Field(
        1,
        ge=0,
        le=MOST_TEXTS,
        description="Sentences a picture must get, else it is dropped: 3 as in RealSyn, whose pictures all have three; "
        "0 keeps pictures without any.",
    )
    max_uses: int | None = Field(
        None, ge=1, le=MOST, description="Pictures that may share one sentence; none: any number, as in RealSyn."
    )
    retrain_at: Advanced[float] = Field(
        2.0, gt=1, description="Clusters are trained anew once there are this many times the rows of their training."
    )

    @model_validator(mode="before")
    @classmethod
    def _probes_once(cls, given: object) -> object:
        """Replace `association: none` by the settings that retrieve nothing; refuse `probes` together with `recall`."""
        if given == NONE:
            return {"top_k": 0, "at_least": 0}
        if isinstance(given, dict) and given.get("probes") is not None and given.get("recall") is not None:
            raise ValueError("`probes` and `recall` both say how many clusters are searched; leave one of them out")
        return given

    @model_validator(mode="after")
    def _gives_enough(self) -> Self:
        """Refuse an `at_least` above `top_k`, which would drop every picture."""
        if self.at_least > self.top_k:
            raise ValueError(f"`at_least: {self.at_least}` is more than `top_k: {self.top_k}`; raise top_k or lower it")
        return self

    @property
    def is_on(self) -> bool:
        """Whether sentences are retrieved at all."""
        return self.top_k > 0

    def unset(self) -> set[str]:
        """Return the names of the settings that records leave out; `probes` is one if `recall` is set."""
        return super().unset() | (set() if self.recall is None else {"probes"})


class Balance(Settings):
    """Settings for limiting the images per cluster, so that no kind of image dominates.

    `cap: none` drops no image and trains no clusters; then ``cap`` is None.
    """

    clusters: Count = Field(1_000_000, description="Clusters of pictures, fewer when there are few pictures.")
    per_cluster: Count = Field(
        168, description="Pictures to a cluster, or more; RealSyn's 198 million in 1 million are 198."
    )
    cap: Cap = Field(
        USUAL_CAP,
        ge=1,
        le=MOST,
        description="Pictures kept of each cluster: RealSyn has 20, 35, 180 for 15M, 30M, 100M. `none` keeps all.",
    )


CONTAMINATION = "contamination"  # the name of the rule that the section makes


class Contamination(Settings):
    """Drop pictures that are near to a benchmark's, by a rule named `contamination`."""

    sets: Advanced[list[str]] = Field(
        min_length=1, description="Folders of benchmark pictures, on every machine that works."
    )
    phash: Advanced[int] = Field(
        4, ge=0, le=16, description="Differing bits of 64 up to which a perceptual hash is a copy's."
    )
    cosine: Advanced[Share | None] = Field(
        0.95, description="Cosine of CLIP's vectors from which a picture is too near; null: hashes alone."
    )

    @property
    def rule(self) -> Rule:
        """The rule on images: drop a picture near to a benchmark's by hash or CLIP, or without a hash."""
        keep = f"benchmark_bits > {self.phash}"
        keep += "" if self.cosine is None else f" AND benchmark_cosine < {self.cosine!r}"
        return Rule.model_construct(name=CONTAMINATION, keep=keep)


LINKS = ("copies", "documents", "hosts")  # what keeps pairs in one split, see `catalog.cut.splits`
Link = Literal["copies", "documents", "hosts"]


def check_splits(shares: dict[str, float]) -> dict[str, float]:
    """Validate the shares of splits. Raise ValueError unless there are several, and they sum to 1."""
    total = sum(shares.values())
    if len(shares) < 2 or abs(total - 1) > 1e-6:
        wrong = f"the shares sum to {total:g}, not to 1" if len(shares) > 1 else "there is one split; name two or more"
        raise ValueError(f"{wrong}; write such as {{train: .98, val: .01, test: .01}}")
    return shares


Splits = Annotated[dict[Name, Share], pydantic.AfterValidator(check_splits)]


def read_sizes(given: object) -> object:
    """Give each name of a plain list of sizes ten times the share of the one before it, and the last one all."""
    if isinstance(given, list):
        if twice := [name for name in given if given.count(name) > 1]:
            raise ValueError(f"two sizes have the name '{twice[0]}'; a name stands for one")
        return {name: round(0.1 ** (len(given) - place), 12) for place, name in enumerate(given, 1)}
    return given


def check_sizes(sizes: dict[str, float]) -> dict[str, float]:
    """Validate that each size is a share up to 1 or a whole number of pairs. Raise ValueError."""
    for name, size in sizes.items():
        if size > 1 and size != int(size):
            raise ValueError(f"'{name}' is {size:g}; write a share up to 1, or a whole number of pairs above 1")
    return sizes


Sizes = Annotated[
    dict[Name, Annotated[float, Field(gt=0, le=MOST)]],
    pydantic.BeforeValidator(read_sizes),
    pydantic.AfterValidator(check_sizes),
]


class Words(Settings):
    """Settings of the word probabilities of the lake that ``corpus_entropy`` is computed with."""

    refresh_at: Advanced[float] = Field(
        2.0, gt=1, description="Words are counted anew once there are this many times the sentences counted."
    )


class Ingest(Settings):
    """Settings for reading sources into rows."""

    documents_per_shard: Count = Field(
        1000,
        description="Documents per shard, the unit of work and of resuming. By default a source of more than 100,000 "
        "has a hundredth of them in a shard, at most 10,000.",
    )
    language: Advanced[str] = Field(
        "en", min_length=2, max_length=8, description="For splitting texts into sentences; changed, all is read again."
    )
    case: Advanced[Literal["keep", "lower"]] = Field(
        "keep", description="lower: sentences in lower case, as RealSyn released its own; changed, all is read again."
    )
    max_pixels: Advanced[Count] = Field(
        100_000_000, description="A larger picture is quarantined as a bomb, undecoded."
    )
    max_bytes: Advanced[Count] = Field(50_000_000, description="A larger file is quarantined as too_large.")
    payload: Advanced[Literal["copy", "reference"]] = Field(
        "copy",
        description="reference leaves pictures in the source's own files and plain tars, which must then last as long "
        "as the lake; what is packed, in a table or on the web is copied.",
    )


class Fetch(Settings):
    """Settings for fetching images that documents only link to.

    Limits change the speed, never which images are fetched.
    """

    connections: int = Field(64, ge=1, le=10_000, description="Connections at once, of all workers together.")
    per_host: int = Field(8, ge=1, le=1000, description="Connections at once to one host, of all workers together.")
    seconds: float = Field(20.0, gt=0, le=600, description="For one attempt at an address, its redirects included.")
    retries: int = Field(2, ge=0, le=10, description="More attempts after time-outs, lost connections, 429 and 5xx.")
    banned: Advanced[list[str] | str] = Field(
        [], description="Hosts (with their subdomains) or beginnings of addresses never asked; or a file, one per line."
    )


class Decoding(Settings):
    """Settings for decoding images, once for all image scorers."""

    side: int = Field(224, ge=32, le=1024, description="The shorter side after decoding, in pixels: what CLIP takes.")
    mode: Advanced[Literal["exact", "scaled"]] = Field(
        "exact", description="scaled reduces JPEGs while decoding: faster."
    )


class ClipSettings(Settings):
    """Settings for computing CLIP embeddings."""

    precision: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="bf16 is two to five times as fast on CPUs with bf16 instructions, three times slower on others.",
    )
    batch_size: Advanced[Count] = Field(64, description="Placement: it changes the speed, not the digest.")
