"""Refuse a threshold that was calibrated on the scores of other scorers than a run has.

A cosine of 0.24 means something else by another CLIP. A rule that `pairmill calibrate` gave its number names the
scorers with models behind its score; a rule without `scorers` is bound to none.
"""

from collections.abc import Mapping

from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe


def refuse_other_scorers(recipe: Recipe, current: Mapping[str, str]) -> None:
    """Check the rules' `scorers` against the digests of ``current`` by name; names of no current scorer pass.

    Raises:
        BadRecipe: A rule's threshold is that of another scorer.
    """
    for rule in (*recipe.images, *recipe.sentences, *recipe.candidates):
        for name, digest in (rule.scorers or {}).items():
            if name in current and not current[name].startswith(digest):
                raise BadRecipe(
                    f"recipe '{recipe.name}', rule '{rule.name}': its threshold was calibrated on scores by {name} "
                    f"{digest[:8]}, and this run has {current[name][:8]}, another model or setting. Run with a loose "
                    f"threshold and without the rule's `scorers`, then calibrate it anew: pairmill calibrate "
                    f"{recipe.name} {rule.name}"
                )
