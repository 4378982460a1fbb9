"""Write Markdown: tables, and texts that hold its special characters."""

from collections.abc import Iterable, Sequence


def cell(text: object) -> str:
    """Return a text for a cell of a table: one line, bars escaped."""
    return " ".join(str(text).split()).replace("|", "\\|")


def code(text: object) -> str:
    """Return a text in code font; '' stays ''."""
    return f"`{text}`" if str(text) else ""


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *([cell(value) for value in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
