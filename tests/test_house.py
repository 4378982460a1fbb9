"""Check naming rules of the source tree that no linter knows."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("flows", "tasks", "ops", "catalog")


def modules() -> list[Path]:
    """List the modules of the four top-level packages."""
    return [path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")]


def test_no_module_has_the_name_of_another():
    found = defaultdict(list)
    for path in modules():
        if path.name != "__init__.py":
            found[path.stem].append(str(path.relative_to(ROOT)))
    assert len(found) > 100
    assert not {name: paths for name, paths in found.items() if len(paths) > 1}


def test_no_class_has_the_name_of_another():
    found = defaultdict(list)
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                found[node.name].append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert len(found) > 100
    assert not {name: places for name, places in found.items() if len(places) > 1}


def test_packages_hold_nothing_themselves():
    assert not [path for path in modules() if path.name == "__init__.py" and path.read_text()]
