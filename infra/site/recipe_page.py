"""Make the page of a recipe's settings from their JSON schema: type, default, range and meaning."""

import json
from collections.abc import Iterator
from typing import Any

from infra.site.markdown import code, table
from pairmill.catalog.recipe.recipe import Recipe

INTRO = """# Settings of a recipe

A recipe is a YAML file; `pairmill recipe show 30m` prints a shipped one. A key that does not exist, a value of another
type and a value outside its range are refused before a run. `--set SECTION.KEY=VALUE` changes one setting of one run.
Settings marked *advanced* stand in no shipped recipe. An editor completes and checks all of them by
[the JSON schema](editors.md).
"""
_BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def recipe_page() -> str:
    """Return the page."""
    schema = Recipe.model_json_schema()
    parts = [INTRO, "## The recipe itself\n", _section(schema, schema)]
    for name, field in schema["properties"].items():
        for place, part in _sections(name, field, schema):
            parts += [f"## {place}\n", part.get("description", "").split("\n\n")[0] + "\n", _section(part, schema)]
    return "\n".join(parts)


def _sections(place: str, field: dict[str, Any], schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (dotted place, schema) of each section at or below a field."""
    for reference in _references(field):
        part = schema["$defs"][reference]
        if "properties" in part:
            yield place, part
            for name, inner in part["properties"].items():
                yield from _sections(f"{place}.{name}", inner, schema)


def _references(field: dict[str, Any]) -> list[str]:
    """Return the names of the definitions that a field's value may be of, or be a list of."""
    inner = [field, field.get("items", {}), *field.get("anyOf", [])]
    return [each["$ref"].rsplit("/", 1)[1] for each in inner if "$ref" in each]


def _section(part: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the table of one section."""
    required = part.get("required", [])
    rows = []
    for name, field in part["properties"].items():
        default = "required" if name in required else _default(field)
        help = field.get("description") or _described(field, schema)
        rows.append((code(name), _type(field), default, f"{help}{' *advanced*' if field.get('advanced') else ''}"))
    return table(["setting", "type and range", "default", "meaning"], rows) + "\n"


def _default(field: dict[str, Any]) -> str:
    """Return a field's default; a section's own defaults are in its table."""
    value = field.get("default")
    return "" if value is None or (isinstance(value, dict) and value) else code(json.dumps(value, ensure_ascii=False))


def _number(value: float) -> str:
    """Return a bound, a large one as a power."""
    return {2**63: "2^63", 10**12: "10^12"}.get(int(value), f"{value:g}")


def _described(field: dict[str, Any], schema: dict[str, Any]) -> str:
    """Return the first line of the description of a field's section."""
    found = [schema["$defs"][name].get("description", "") for name in _references(field)]
    return next((text.split("\n")[0] for text in found if text), "")


def _type(field: dict[str, Any]) -> str:
    """Return type, choices and bounds of a field in words."""
    if "anyOf" in field:
        return " or ".join(_type(each) for each in field["anyOf"] if each.get("type") != "null")
    if "enum" in field or "const" in field:
        return ", ".join(code(each) for each in field.get("enum", [field.get("const")]))
    if field.get("type") == "array":
        return f"list of {_type(field.get('items', {})) or 'values'}"
    if "$ref" in field or field.get("type") == "object":
        return "settings"
    bounds = [f"{sign} {_number(field[key])}" for key, sign in _BOUNDS.items() if key in field]
    name = {"integer": "whole number", "number": "number", "string": "text", "boolean": "true or false"}
    return " ".join([name.get(field.get("type", ""), ""), ", ".join(bounds)]).strip()
