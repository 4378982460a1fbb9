"""Declare the sections of a recipe for reading, fetching, decoding and embedding, and for the words of a corpus."""

from typing import Literal

from pydantic import Field

from pairmill.catalog.recipe.parts import ADVANCED, MOST, Settings


class Words(Settings):
    """Settings of the word probabilities of the lake that ``corpus_entropy`` is computed with."""

    refresh_at: float = Field(
        2.0,
        gt=1,
        description="Words are counted anew once there are this many times the sentences counted.",
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
    case: Literal["keep", "lower"] = Field(
        "keep",
        description="lower: sentences in lower case, as RealSyn released its own; changed, all is read again.",
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
