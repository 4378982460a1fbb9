"""Make the page of all messages to users from the places that raise them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from infra.site.markdown import cell

ROOT = Path(__file__).resolve().parents[2]
FLOORS = ("flows", "tasks", "ops", "catalog")
ERRORS = {"PairmillError", "LeaseHeld", "NewerLake", "Damaged", "BadRecipe", "BadPredicate", "BadQuery", "LeaseLost",
          "ModelError", "SourceError"}  # fmt: skip
INTRO = """# Messages

What Pairmill says of an error that can be mended, by the part that says it: what is wrong, where, and the remedy. `…`
stands for a name or a number. Search this page for a piece of a message. In Python all are `pairmill.PairmillError`.
"""


def messages_page() -> str:
    """Return the page."""
    parts = [INTRO]
    by_room: dict[str, list[str]] = {}
    for path in sorted(path for floor in FLOORS for path in (ROOT / floor).rglob("*.py")):
        found = list(dict.fromkeys(messages_of(path.read_text(encoding="utf-8"))))
        room = str(path.parent.relative_to(ROOT))
        by_room.setdefault(room, []).extend(found)
    for room, found in by_room.items():
        if found:
            parts += [f"## {room}\n", "\n".join(f"- {cell(_escaped(text))}" for text in found), ""]
    return "\n".join(parts)


def messages_of(source: str) -> Iterator[str]:
    """Yield the messages of the errors that a module makes; parts that are computed are '…'."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ERRORS and node.args:
            text = _text(node.args[0])
            if len(text.replace("…", "").strip()) > 12:
                yield text


def _text(node: ast.expr) -> str:
    """Return the constant parts of a message."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) for part in node.values)
    if isinstance(node, ast.BinOp):
        return _text(node.left) + _text(node.right)
    return "…"


def _escaped(text: str) -> str:
    """Return a message in which Markdown marks nothing but code."""
    return "`".join(
        part if place % 2 else part.replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_").replace("[", "\\[")
        for place, part in enumerate(text.split("`"))
    )
