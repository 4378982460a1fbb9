"""Golden values of ops: the output of an op's version on fixed inputs must never change under that version.

`PAIRMILL_WRITE_GOLDEN=1 pytest ...` writes the file of a new op or of a new version; the values of an existing version
are never rewritten.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parents[1] / "ops" / "golden"
TOLERANCE = 1e-3


def check_golden(name: str, version: int, values: Any) -> None:
    """Fail unless ``values`` (numbers, texts, arrays, lists and dicts of them) equal those stored for ``version``.

    Floats may differ by 1e-3 (relative above 1), because machine types differ. Whole numbers and texts must be equal.
    Keep the values few, because people read the file.
    """
    path = FOLDER / f"{name}.json"
    found = _plain(values)
    stored = json.loads(path.read_text()) if path.exists() else None
    if stored is not None and stored["version"] == version:
        difference = _difference(stored["values"], found, name)
        assert not difference, f"{difference}. The output of '{name}' changed: bump version (it is {version})"
        return
    if os.environ.get("PAIRMILL_WRITE_GOLDEN") != "1":
        known = f"of version {stored['version']}" if stored else "missing"
        raise AssertionError(
            f"golden values of '{name}' are {known}: run the test with PAIRMILL_WRITE_GOLDEN=1 to write {version}"
        )
    assert stored is None or version > stored["version"], (
        f"version {version} of '{name}' is older than its golden values"
    )
    FOLDER.mkdir(exist_ok=True)
    path.write_text(json.dumps({"version": version, "values": found}, indent=1, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    """Convert arrays and tuples to lists, and round floats to 6 decimals."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, list | tuple):
        return [_plain(inner) for inner in value]
    return round(value, 6) if isinstance(value, float) else value


def _difference(stored: Any, found: Any, where: str) -> str:
    """Describe the first difference, '' if equal."""
    if isinstance(stored, dict) and isinstance(found, dict) and stored.keys() == found.keys():
        return next((text for key in stored if (text := _difference(stored[key], found[key], f"{where}.{key}"))), "")
    if isinstance(stored, list) and isinstance(found, list) and len(stored) == len(found):
        pairs = enumerate(zip(stored, found, strict=True))
        return next((text for at, (a, b) in pairs if (text := _difference(a, b, f"{where}[{at}]"))), "")
    if isinstance(stored, float) and isinstance(found, float | int):
        close = abs(stored - found) <= TOLERANCE * max(1.0, abs(stored)) or (stored != stored and found != found)
        return "" if close else f"{where}: {stored} before, {found} now"
    return "" if stored == found and type(stored) is type(found) else f"{where}: {stored!r} before, {found!r} now"
