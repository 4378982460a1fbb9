"""Write the recipe of a version, with one rule changed, as YAML that `pairmill run` reads."""

import json

import yaml

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.datasets import Dataset
from pairmill.catalog.queries.figures.report import plan_of
from pairmill.catalog.recipe.recipe import changed


def saved_recipe(lake: Lake, dataset: Dataset, kind: str, rule: str, keep: str) -> str:
    """Return the recipe of ``dataset`` with the predicate of ``rule`` on ``kind`` ('image', 'sentence') replaced.

    All settings are written, defaults too, so a later release with other defaults makes the same dataset of it. Secrets
    in addresses of sources were never stored. Raises BadRecipe if there is no such rule, or ``keep`` is no predicate.
    """
    recipe = changed(plan_of(lake, dataset).recipe, {f"{kind}s.{rule}.keep": json.dumps(keep)})
    said = f"# {dataset} with another rule '{rule}'. Run it on the same lake: only what changed is computed.\n"
    return said + yaml.safe_dump(recipe.record(), sort_keys=False, allow_unicode=True, width=110)
