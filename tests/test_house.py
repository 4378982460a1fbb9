"""Check naming rules of the source tree that no linter knows."""

import ast
import re
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


def test_the_architecture_has_one_line_for_every_room_and_stays_short():
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| `([\w/]+)` \|", text, re.MULTILINE)
    rooms = {str(path.parent.relative_to(ROOT)) for path in modules() if path.name != "__init__.py"}
    assert sorted(named) == sorted(rooms) and len(text.encode()) <= 18_000
    paths = re.findall(r"`((?:flows|tasks|ops|catalog|tests|infra)/[\w/.]+)`", text)
    assert len(paths) > 60 and [path for path in paths if not (ROOT / path).exists()] == []


def test_the_map_of_the_tests_worlds_names_each_file_once_and_fits_a_page():
    folder = ROOT / "tests" / "worlds"
    text = (folder / "README.md").read_text(encoding="utf-8")
    named = [name for line in text.splitlines() if line[:2] == "- " for name in re.findall(r"`(\w[\w.]+)`", line)]
    named = [name for name in named if (folder / name).exists() or name.endswith((".py", ".tsv", ".txt"))]
    files = [path.name for path in folder.iterdir() if path.name not in ("README.md", "__pycache__")]
    assert sorted(named) == sorted(files) and len(text.splitlines()) <= 80


VERBS = "SELECT|INSERT INTO|DELETE FROM|UPDATE|CREATE (?:OR REPLACE|TEMP|TABLE|VIEW)|DROP|CALL|COPY|WITH \\w+ AS"


def test_flows_and_tasks_hold_no_sql_and_rooms_that_read_write_no_table():
    found, seen = [], 0
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and re.match(rf"\s*(?:{VERBS}) \S", node.value)
            ):
                seen += 1
                floor, room = path.relative_to(ROOT).parts[:2]
                writes = re.match(r"\s*(?:INSERT INTO|DELETE FROM|UPDATE) ", node.value)
                if floor in ("flows", "tasks") or (room == "queries" and writes):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert seen > 100 and found == []
