"""Declare the section of a recipe that limits the images of each cluster."""

import math
from typing import Annotated, Any, Self

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from pairmill.catalog.recipe.parts import ADVANCED, MOST, Settings
from pairmill.catalog.recipe.whole_number import WholeNumber

USUAL_CAP = 35  # RealSyn's cap for its 30M dataset
NO_CAP = "none"  # the cap of a recipe that balances nothing


class Balance(Settings):
    """Settings for limiting the images per cluster, so that no kind of image dominates: a cap, or a total to keep.

    Without either setting the cap is 35 images per cluster. `cap: none` drops no image and trains no clusters; then
    both fields are None.
    """

    clusters: int = Field(
        1_000_000, ge=1, le=MOST, description="Clusters of pictures, fewer when there are few pictures."
    )
    per_cluster: int = Field(
        168, ge=1, le=MOST, description="Pictures to a cluster, or more; RealSyn's 198 million in 1 million are 198."
    )
    cap: int | None = Field(
        None,
        ge=1,
        le=MOST,
        description="Pictures kept of each cluster: RealSyn has 20, 35, 180 for 15M, 30M, 100M. `none` keeps all.",
    )
    target: WholeNumber | None = Field(
        None,
        description="Pictures to keep in all, 30M say, in the place of a cap: the smallest cap that reaches it.",
        json_schema_extra=ADVANCED,
    )

    fewer: dict[int, Annotated[float, Field(gt=0, le=MOST)]] | None = Field(
        None,
        description="Clusters by number, each with its own smaller cap: below 1 a share of `cap`, from 1 on pictures. "
        "`pairmill clusters` prints the line.",
        json_schema_extra=ADVANCED,
    )

    @model_validator(mode="before")
    @classmethod
    def _has_a_cap(cls, given: object) -> object:
        """Replace the cap `none` by None; add the default cap if neither `cap` nor `target` is set."""
        if not isinstance(given, dict):
            return given
        if given.get("cap") == NO_CAP:
            return {**given, "cap": None}
        if given.get("cap") is None and given.get("target") is None:
            return {**given, "cap": USUAL_CAP}
        return given

    @model_validator(mode="after")
    def _has_one(self) -> Self:
        """Refuse `cap` together with `target`."""
        if self.cap is not None and self.target is not None:
            raise ValueError("`cap` and `target` both say how many pictures are kept; leave one of them out")
        if self.fewer and self.cap is None:
            raise ValueError("`fewer` lowers the cap of some clusters; give `cap` a number with it")
        return self

    @property
    def lower_caps(self) -> dict[int, int]:
        """The clusters whose own cap is lower than ``cap``, with that cap in pictures, 1 or more."""
        cap, fewer = self.cap or 0, self.fewer or {}
        own = {cluster: math.ceil(cap * most) if most < 1 else int(most) for cluster, most in fewer.items()}
        return {cluster: most for cluster, most in sorted(own.items()) if most < cap}

    @model_serializer(mode="wrap")
    def _without_omitted(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Serialise the section with one of `cap` and `target`; without a cap it is `cap: none`."""
        written = {name: value for name, value in write(self).items() if value is not None}
        return written if self.is_on else {**written, "cap": NO_CAP}

    @property
    def is_on(self) -> bool:
        """Whether clusters are capped at all."""
        return self.cap is not None or self.target is not None
