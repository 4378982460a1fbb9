"""Read packs of rules: YAML files of `images`, `sentences` and `candidates` that `--with` adds to a recipe."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from pairmill.catalog.lake.yaml_text import parse_yaml
from pairmill.catalog.recipe.overrides import RULES, explain_fault
from pairmill.catalog.recipe.parts import Rule, Settings
from pairmill.catalog.terms.error import BadRecipe, did_you_mean


class RulePack(Settings):
    """The rules of one pack, by what they judge, and other settings by dotted key."""

    images: list[Rule] = Field([])
    sentences: list[Rule] = Field([])
    candidates: list[Rule] = Field([])
    settings: dict[str, Any] = Field({})


def pack_overrides(names: Sequence[str], folder: Path) -> dict[str, str]:
    """Return rules and settings of packs as overrides, by dotted key; a rule of a known name is replaced.

    A name is that of a file in ``folder`` without its ending, or a path. Raises BadRecipe.
    """
    found: dict[str, str] = {}
    for name in names:
        pack = _read(name, folder)
        found |= {key: json.dumps(value) for key, value in pack.settings.items()}
        for kind in RULES:
            for rule in getattr(pack, kind):
                # null takes out what the recipe's rule of that name has.
                given = {"keep": None, "calibrate": None, "scorers": None} | rule.model_dump(mode="json")
                del given["name"]
                if f"{kind}.{rule.name}.keep" in found:
                    raise BadRecipe(f"pack '{name}': there are two rules '{rule.name}' in `{kind}`; rename one.")
                found |= {f"{kind}.{rule.name}.{key}": json.dumps(value) for key, value in given.items()}
    return found


def _read(name: str, folder: Path) -> RulePack:
    """Read one pack. Raises BadRecipe."""
    is_path = name.endswith((".yaml", ".yml")) or "/" in name
    file = Path(name).expanduser() if is_path else folder / f"{name}.yaml"
    if not file.is_file():
        known = sorted(each.stem for each in folder.glob("*.yaml"))
        remedy = did_you_mean(name, known) or f"there are {', '.join(known)}; or give a file's path."
        raise BadRecipe(f"there is no pack of rules '{name}'; {remedy}")
    try:
        content = parse_yaml(file.read_text(encoding="utf-8"))
    except (ValueError, OSError) as error:
        raise BadRecipe(f"pack '{name}' cannot be read as YAML: {error}") from error
    try:
        return RulePack.model_validate(content)
    except ValidationError as error:
        at = content if isinstance(content, dict) else {}
        faults = "; ".join(explain_fault(fault, at, RulePack) for fault in error.errors())
        raise BadRecipe(f"pack '{name}', {faults}") from error
