"""Refuse phrases of the project's old dialect in docstrings and comments: print each with what to write instead."""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FLOORS = ("flows", "tasks", "ops", "catalog", "infra")

# Phrase -> what to write instead. A phrase may be broken over two lines.
REFUSED = {
    r"\b(is|are|be) told\b(?! apart)": "receives, or must",
    r"\bin (the|a) worker's hands\b": "leased to the worker",
    r"\bwho(ever)? asks\b": "the caller",
    r"\b(what|which) (\w+ ){1,2}(is|are) to have\b": "the pending rows",
    r"\bwithout a word\b": "silently, or without words",
    r"\bwhere there are none\b": "if there are none, or empty",
    r"\btold before\b": "cached",
    r"\bas many as the CPUs\b": "one per CPU, or a number that the CPUs allow",
    r"\bwhat the model takes\b": "the model's inputs",
    r"\bof what (it|they) would be made\b": "from the current inputs",
    r"\bso as to be\b": "to be",
    r"\bas it were\b": "leave it out",
}


def found(source: str) -> Iterator[tuple[int, str, str]]:
    """Yield (line, phrase, what to write instead) for each refused phrase of a Python source."""
    for start, text in sorted(_prose(source)):
        for pattern, instead in REFUSED.items():
            for match in re.finditer(pattern.replace(" ", r"[\s#]+"), text, re.IGNORECASE):
                yield start + text[: match.start()].count("\n"), " ".join(re.split(r"[\s#]+", match[0])), instead


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield (first line, text) of each docstring and each block of comments."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0] if node.body else None
            is_text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
            if is_text and isinstance(first.value.value, str):
                yield first.lineno, ast.get_docstring(node, clean=False) or ""
    lines: dict[int, str] = {}
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            lines[token.start[0]] = token.string
    for number in lines:
        if number - 1 not in lines:
            end = number
            while end in lines:
                end += 1
            yield number, "\n".join(lines[each] for each in range(number, end))


def main() -> int:
    """Check all modules; return 1 if one has a refused phrase."""
    count = 0
    for floor in FLOORS:
        for path in sorted((ROOT / floor).rglob("*.py")):
            if "package" in path.relative_to(ROOT).parts:  # links to the other folders
                continue
            for line, phrase, instead in found(path.read_text()):
                print(f"{path.relative_to(ROOT)}:{line}: '{phrase}' -> {instead}")
                count += 1
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main())
