"""Extend a recipe by another, apply ``--set`` overrides, and format validation errors as sentences with a remedy.

``extends: 30m`` in a recipe's file takes over all settings of recipe 30m that the file does not set.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

from pairmill.catalog.lake.yaml_text import parse_yaml
from pairmill.catalog.terms.error import BadRecipe, did_you_mean

TYPING_ERROR = 0.9  # likeness of two names from which one is taken for the other: sharpp, sharp
RULES = ("images", "sentences", "candidates")  # settings of a recipe that are lists of rules
_KINDS = {
    "int": "a whole number; write one, such as 20",
    "float": "a number; write one, such as 0.5",
    "string": "a text; put it into quotes",
    "bool": "true or false; write one of the two",
    "list": "a list; write [first, second]",
    "dict": "a group of settings; write name: value lines",
}  # the first part of pydantic's error types, such as int_parsing
_BOUNDS = {
    "greater_than_equal": ("ge", "is too small; write {} or more"),
    "greater_than": ("gt", "is too small; write a number above {}"),
    "less_than_equal": ("le", "is too large; write at most {}"),
    "less_than": ("lt", "is too large; write a number below {}"),
}


def parse_value(key: str, text: str) -> object:
    """Parse the value of ``--set key=text`` as YAML. Raises BadRecipe."""
    try:
        return parse_yaml(text)
    except ValueError as error:
        raise BadRecipe(f"--set {key}: '{text[:200]}' is not a YAML value; put it into quotes: {error}") from error


def override(content: dict[str, Any], key: str, text: str) -> None:
    """Set a dotted key such as ``balance.cap`` in the content of a recipe before validation; null takes a rule out.

    Raises BadRecipe if ``text`` is not YAML, or if the key does not exist or names a rule as a whole.
    """
    value = parse_value(key, text)
    at: Any = content
    *parents, last = key.split(".")
    if last == "keep" and len(parents) == 2 and parents[0] in RULES:
        _add_rule(content, *parents)
    for part in parents:
        at = _step(at, part, key)
    if isinstance(at, list):
        index = _index(at, last, key)
        if value is None:
            del at[index]
            return
        if isinstance(at[index], dict) and not isinstance(value, dict):
            first = next((name for name in at[index] if name != "name"), "name")
            raise BadRecipe(f"--set {key}: '{last}' has several settings; name one, such as {key}.{first}.")
        at[index] = value
    elif isinstance(at, dict):
        at[last] = value
    else:
        raise BadRecipe(f"--set {key}: '{'.'.join(parents)}' holds one value, nothing named '{last}'.")


def _add_rule(content: dict[str, Any], kind: str, name: str) -> None:
    """Append an empty rule ``name`` to the rules ``kind`` unless one has that name, or one that differs by a letter."""
    rules = content.setdefault(kind, [])
    names = [str(rule.get("name")) for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else [name]
    if name not in names and not name.isdecimal() and not get_close_matches(name, names, cutoff=TYPING_ERROR):
        rules.append({"name": name})


def replace_alternatives(content: dict[str, Any], keys: Collection[str]) -> None:
    """Remove the setting whose alternative is overridden by one of ``keys``: `association.recall` or `.probes`.

    If both are overridden, both stay, and the recipe's own validation refuses them.
    """
    settings = content.get("association")
    for name, other in (("probes", "recall"), ("recall", "probes")):
        asked = f"association.{name}" in keys and f"association.{other}" not in keys
        if asked and isinstance(settings, dict) and settings.get(name) is not None:
            settings.pop(other, None)


def _step(at: Any, part: str, key: str) -> Any:
    """Return the part of a recipe named ``part`` below ``at``; create an empty section if it is missing."""
    if isinstance(at, list):
        return at[_index(at, part, key)]
    if not isinstance(at, dict):
        raise BadRecipe(f"--set {key}: there is nothing below '{part}'.")
    if at.get(part) is None:
        at[part] = {}
    return at[part]


def _index(at: list[Any], part: str, key: str) -> int:
    """Return the index of a list element by its number, or by its `name` (rules, captioners)."""
    names = [str(item.get("name")) if isinstance(item, dict) else "" for item in at]
    if part in names:
        return names.index(part)
    if re.fullmatch(r"\d{1,9}", part) and int(part) < len(at):
        return int(part)
    remedy = did_you_mean(part, names) or f"there are {', '.join(filter(None, names)) or len(at)}."
    raise BadRecipe(f"--set {key}: there is no '{part}'; {remedy}")


def explain_fault(fault: Any, content: Mapping[str, Any], model: type[BaseModel]) -> str:
    """Format one pydantic error as a sentence with its remedy."""
    where = _where(fault["loc"], content)
    if fault["type"] == "extra_forbidden":
        key, known = str(fault["loc"][-1]), _fields_at(fault["loc"][:-1], model)
        remedy = did_you_mean(key, known) or f"known are {', '.join(known)}."
        return f"{where}: there is no such setting; {remedy}"
    if fault["type"] == "missing":
        return f"{where}: it is missing; add it."
    if fault["type"] == "model_type":
        names = [name for name in _fields_at(fault["loc"], model) if name != "name"]
        return f"{where}: {_quote_value(fault['input'])} is not a group of settings; set one of its {', '.join(names)}"
    if plain := _plain(fault):
        return f"{where}: {plain}"
    message = fault["msg"].removeprefix("Value error, ")
    given = fault["input"]
    shown = f" (it is {given!r})" if isinstance(given, str | int | float | bool) and len(str(given)) <= 80 else ""
    return f"{where}: {message}{shown if fault['type'] != 'value_error' else ''}"


def _plain(fault: Any) -> str:
    """Format a value of the wrong type, beyond a bound, or not among the choices; return '' for other errors."""
    shown = _quote_value(fault["input"])
    if fault["type"] in _BOUNDS:
        name, text = _BOUNDS[fault["type"]]
        bound = fault["ctx"][name]
        return f"{shown} {text.format(int(bound) if bound == int(bound) else bound)}"
    if fault["type"] == "literal_error":
        return f"{shown} is not a choice; write {fault['ctx']['expected']}"
    if fault["type"] == "string_pattern_mismatch":
        return f"{shown} is no name; write small letters, digits, '-' and '_', a letter or digit first"
    kind, _, problem = fault["type"].partition("_")
    if kind in _KINDS and problem in ("parsing", "type", "from_float"):
        return f"{shown} is not {_KINDS[kind]}"
    return ""


def _quote_value(given: Any) -> str:
    """Quote a short value; return 'this' for a long one or a group."""
    if given is None:
        return "an empty value"
    return "this" if isinstance(given, (dict, list)) or len(str(given)) > 80 else repr(given)


def _where(loc: Sequence[str | int], content: Any) -> str:
    """Format the location of an error by names: `images.short_side.keep` rather than `images.0.keep`."""
    parts, at = [], content
    for key in loc:
        if isinstance(at, dict):
            at = at.get(key)
        else:
            at = at[key] if isinstance(at, list) and isinstance(key, int) else None
        parts.append(str(at["name"]) if isinstance(key, int) and isinstance(at, dict) and "name" in at else str(key))
    return f"'{'.'.join(parts)}'" if parts else "as a whole"


def _fields_at(loc: Sequence[str | int], model: type[BaseModel]) -> list[str]:
    """Return the names of the settings that the recipe section at ``loc`` accepts."""
    for key in loc:
        if isinstance(key, str) and key in model.model_fields:
            model = _model_in(model.model_fields[key].annotation) or model
    return list(model.model_fields)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    """Return the first pydantic model in a type annotation, such as Rule in ``list[Rule]``; None without one."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next(filter(None, map(_model_in, get_args(annotation))), None)


EXTENDS = "extends"
DEEPEST = 8  # recipes that extend one another; more is a circle


def extend(content: Mapping[str, Any], read: Callable[[str], Mapping[str, Any]], depth: int = 0) -> dict[str, Any]:
    """Return a recipe's settings merged into those of the recipe that it extends, which ``read`` loads by name.

    Sections are merged by key. Rules and captioners are merged by name: an element with a known name changes settings
    of the extended recipe's element in place, other elements follow; an element whose other settings are all null is
    removed. Any other value replaces that of the extended recipe, whose name is never taken over. Raises BadRecipe if
    ``extends`` is no text, or recipes extend one another in a circle.
    """
    settings = {key: value for key, value in content.items() if key != EXTENDS}
    if EXTENDS not in content:
        return settings
    name = content[EXTENDS]
    if not isinstance(name, str) or depth >= DEEPEST:
        why = "is extended in a circle" if isinstance(name, str) else "is no recipe's name or path"
        raise BadRecipe(f"recipe '{content.get('name', '')}', 'extends': {name!r} {why}; name one such as 30m.")
    try:
        extended = read(name)
    except BadRecipe as error:
        raise BadRecipe(f"recipe '{content.get('name', '')}', 'extends': {error}") from error
    base = extend(extended, read, depth + 1)
    base.pop("name", None)
    named = {"name": settings["name"]} if "name" in settings else {}
    return named | {key: value for key, value in _merge(base, settings).items() if value is not None}


def _merge(base: Any, change: Any) -> Any:
    """Return ``base`` with ``change`` applied to it."""
    if isinstance(base, dict) and isinstance(change, Mapping):
        return {**base, **{key: _merge(base.get(key), value) for key, value in change.items()}}
    if isinstance(base, list) and _is_named(base) and _is_named(change):
        return _merge_by_name(base, change)
    return change


def _is_named(value: Any) -> bool:
    """Return whether this is a list of settings that each have a name."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "name" in one for one in value)


def _merge_by_name(base: list[Any], change: list[Any]) -> list[Any]:
    """Return the elements of ``base`` merged by name with elements of ``change``; new elements come last."""
    found = {one["name"]: one for one in base}
    for one in change:
        others = [value for key, value in one.items() if key != "name"]
        if others and all(value is None for value in others):
            found.pop(one["name"], None)
        else:
            found[one["name"]] = _merge(found.get(one["name"], {}), one)
    return list(found.values())
