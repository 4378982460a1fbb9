"""Extend a recipe by another: ``extends: 30m`` takes over all settings of that recipe that a file does not set."""

from collections.abc import Callable, Mapping
from typing import Any

from pairmill.catalog.terms.error import BadRecipe

EXTENDS = "extends"
DEEPEST = 8  # recipes that extend one another; more is a circle


def extended(content: Mapping[str, Any], read: Callable[[str], Mapping[str, Any]], depth: int = 0) -> dict[str, Any]:
    """Return the settings of a recipe together with those of the recipe that it extends, which ``read`` reads by name.

    Sections are merged by key. Rules and captioners are merged by name: one with a known name replaces settings of it
    in its place, others follow. One whose other settings are all null is taken out. Any other value replaces that of
    the extended recipe. The name is never taken over.

    Raises:
        BadRecipe: ``extends`` is no text, or recipes extend one another in a circle.
    """
    settings = {key: value for key, value in content.items() if key != EXTENDS}
    if EXTENDS not in content:
        return settings
    name = content[EXTENDS]
    if not isinstance(name, str) or depth >= DEEPEST:
        why = "is extended in a circle" if isinstance(name, str) else "is no recipe's name or path"
        raise BadRecipe(f"recipe '{content.get('name', '')}', 'extends': {name!r} {why}; name one such as 30m.")
    base = extended(read(name), read, depth + 1)
    base.pop("name", None)
    named = {"name": settings["name"]} if "name" in settings else {}
    return named | {key: value for key, value in _merged(base, settings).items() if value is not None}


def _merged(base: Any, change: Any) -> Any:
    """Return ``base`` with ``change`` applied to it."""
    if isinstance(base, dict) and isinstance(change, Mapping):
        return {**base, **{key: _merged(base.get(key), value) for key, value in change.items()}}
    if isinstance(base, list) and _is_named(base) and _is_named(change):
        return _merged_by_name(base, change)
    return change


def _is_named(value: Any) -> bool:
    """Return whether this is a list of settings that each have a name."""
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) and "name" in one for one in value)


def _merged_by_name(base: list[Any], change: list[Any]) -> list[Any]:
    """Return the elements of ``base`` with those of ``change`` in the places of their names, or behind."""
    found = {one["name"]: one for one in base}
    for one in change:
        others = [value for key, value in one.items() if key != "name"]
        if others and all(value is None for value in others):
            found.pop(one["name"], None)
        else:
            found[one["name"]] = _merged(found.get(one["name"], {}), one)
    return list(found.values())
