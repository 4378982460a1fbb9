"""Write the JSON schema of recipe files, by which editors complete and check them."""

from typing import Any

from pairmill.catalog.recipe.extension import EXTENDS
from pairmill.catalog.recipe.parts import NONE
from pairmill.catalog.recipe.recipe import Recipe

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def recipe_schema() -> dict[str, Any]:
    """Return the schema. A file that extends a recipe needs only a name, and may set a part of each section.

    `association`, `duplicates` and `balance.cap` also take 'none'; a rule whose `keep` is null is taken out of the
    extended recipe.
    """
    schema = Recipe.model_json_schema()
    alone = schema["required"]
    about = "Name or path of a recipe whose settings are taken over where this file has none."
    schema["properties"] = {EXTENDS: {"type": "string", "description": about}, **schema["properties"]}
    cap = schema["$defs"]["Balance"]["properties"]["cap"]
    cap["anyOf"] = [each for each in cap["anyOf"] if each.get("type") != "null"] + [{"const": NONE}]
    for name in ("association", "duplicates"):
        section = schema["properties"][name]
        section["anyOf"] = [{"$ref": section.pop("$ref")}, {"const": NONE}]
    schema["$defs"]["Rule"]["properties"]["keep"]["type"] = ["string", "boolean", "null"]
    del schema["required"]
    extends = {"required": [EXTENDS]}
    return {"$schema": DIALECT, **schema, "if": extends, "then": {"required": ["name"]}, "else": {"required": alone}}
