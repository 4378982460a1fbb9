"""Implement `pairmill recipe`: print a recipe's file, or the JSON schema of all recipes."""

import json
import sys
from argparse import Namespace
from pathlib import Path

import yaml

from pairmill.catalog.recipe.overrides import EXTENDS
from pairmill.catalog.recipe.recipe import find_file, load, recipe_schema, settings_of
from pairmill.flows.run.settings import RECIPES


def recipe(args: Namespace) -> int:
    """Print a recipe's file unchanged, or all resulting settings if it extends another; with 'schema' the JSON schema.

    Raises BadRecipe if the recipe is missing or not valid.
    """
    if args.what == "schema":
        if args.recipe:
            args.parser.error(f"unrecognized arguments: {args.recipe}")
        print(json.dumps(recipe_schema(), indent=1, ensure_ascii=False))
        return 0
    if not args.recipe:
        args.parser.error("the following arguments are required: RECIPE")
    load(args.recipe, None, RECIPES)
    text = Path(find_file(args.recipe, RECIPES)).read_text(encoding="utf-8")
    if EXTENDS in (yaml.safe_load(text) or {}):
        text = yaml.safe_dump(settings_of(args.recipe, RECIPES), sort_keys=False, allow_unicode=True, width=120)
    sys.stdout.write(text)
    return 0
