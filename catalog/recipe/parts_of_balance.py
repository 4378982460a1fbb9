"""Declare the section of a recipe that limits the images of each cluster."""

from typing import Annotated

from pydantic import BeforeValidator, Field, PlainSerializer

from pairmill.catalog.recipe.parts import MOST, NONE, Settings

USUAL_CAP = 35  # RealSyn's cap for its 30M dataset
Cap = Annotated[
    int | None,
    BeforeValidator(lambda given: None if given == NONE else USUAL_CAP if given is None else given),
    PlainSerializer(lambda cap: NONE if cap is None else cap),
]


class Balance(Settings):
    """Settings for limiting the images per cluster, so that no kind of image dominates.

    `cap: none` drops no image and trains no clusters; then ``cap`` is None.
    """

    clusters: int = Field(
        1_000_000, ge=1, le=MOST, description="Clusters of pictures, fewer when there are few pictures."
    )
    per_cluster: int = Field(
        168, ge=1, le=MOST, description="Pictures to a cluster, or more; RealSyn's 198 million in 1 million are 198."
    )
    cap: Cap = Field(
        USUAL_CAP,
        ge=1,
        le=MOST,
        description="Pictures kept of each cluster: RealSyn has 20, 35, 180 for 15M, 30M, 100M. `none` keeps all.",
    )
