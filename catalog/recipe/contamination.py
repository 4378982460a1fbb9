"""Declare the recipe section that keeps a benchmark's pictures out of a dataset."""

from pydantic import Field

from pairmill.catalog.recipe.parts import ADVANCED, Rule, Settings

NAME = "contamination"  # the name of the rule that the section makes


class Contamination(Settings):
    """Drop pictures that are near to a benchmark's, by a rule named `contamination`."""

    sets: list[str] = Field(
        min_length=1,
        description="Folders of benchmark pictures, on every machine that works.",
        json_schema_extra=ADVANCED,
    )
    phash: int = Field(
        4,
        ge=0,
        le=16,
        description="Differing bits of 64 up to which a perceptual hash is a copy's.",
        json_schema_extra=ADVANCED,
    )
    cosine: float | None = Field(
        0.95,
        gt=0,
        le=1,
        description="Cosine of CLIP's vectors from which a picture is too near; null: hashes alone.",
        json_schema_extra=ADVANCED,
    )

    @property
    def rule(self) -> Rule:
        """The rule on images: a picture is dropped at a small distance or a large cosine, or without a value."""
        keep = f"benchmark_bits > {self.phash}"
        keep += "" if self.cosine is None else f" AND benchmark_cosine < {self.cosine!r}"
        return Rule.model_construct(name=NAME, keep=keep)
