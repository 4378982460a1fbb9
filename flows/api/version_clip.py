"""Return the CLIP model of a dataset version, to embed words into the space of its stored vectors."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.write.scorer import model_of
from pairmill.ops.models.clip.clip import Clip
from pairmill.ops.models.model_digest import model_digest


def version_clip(lake: Lake, version: Dataset) -> tuple[Clip, str]:
    """Return the model and the digest of the scorer of image vectors. The weights load at the first use.

    Raises:
        PairmillError: The version has no vectors of pictures, or the model's files are no longer those that made them.
    """
    plan = plan_of(lake, version)
    scorer = plan.scorer("image_embedding")
    found = model_of(lake, scorer)
    if found is None:
        raise PairmillError(f"{version} has no vectors of pictures; a run with a CLIP model makes them.")
    spec = plan.recipe.models["clip"]
    if model_digest(spec) != found:
        raise PairmillError(
            f"model '{spec}' is not the one whose vectors {version} holds; put its files back, or run with the new one."
        )
    return Clip(spec, plan.recipe.clip.precision), scorer
