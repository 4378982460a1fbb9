"""Find the newest import of each imported score that a plan reads."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.plan import Plan
from pairmill.catalog.terms.error import BadRecipe
from pairmill.catalog.terms.imported import PREFIX
from pairmill.catalog.write.import_scores import newest_import


def with_imported(lake: Lake, plan: Plan) -> Plan:
    """Return the plan with the scorers of the newest imports.

    Raises:
        BadRecipe: The recipe names a score that was never imported into the lake.
    """
    for table in [score.table for score in plan.scores if score.table.startswith(PREFIX)]:
        scorer = newest_import(lake, table)
        if not scorer:
            name = table.removeprefix(PREFIX)
            raise BadRecipe(
                f"recipe '{plan.recipe.name}', imported: lake '{lake.uri}' has no scores '{name}'; import them: "
                f"pairmill import-scores FILE.parquet --name {name} --lake {lake.uri}"
            )
        plan = plan.with_scorer(table, scorer)
    return plan
