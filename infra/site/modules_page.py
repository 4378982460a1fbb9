"""Make the page of all modules from their docstrings' first lines."""

import ast

from infra.site.pages import ROOT

FOLDERS = {
    "flows": "what happens, in order: the recipe read aloud",
    "tasks": "one step each, where a table meets a batch",
    "ops": "how, for one batch: plain Python, numpy, torch",
    "catalog": "what is true: the only place where state changes",
}


def modules_page() -> str:
    """Return the page. Raises SystemExit for a module without a docstring."""
    lines = ["# Map of modules", "", "Every module in a line, from its docstring.", ""]
    lines += ["| module | what it is |", "|---|---|"]
    for folder, meaning in FOLDERS.items():
        lines.append(f"| **{folder}/** | **{meaning}** |")
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name != "__init__.py":
                doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
                if not doc:
                    raise SystemExit(f"{path.relative_to(ROOT)} has no docstring; give it a line that says what it is")
                lines.append(f"| `{path.relative_to(ROOT)}` | {doc.splitlines()[0].rstrip('.')} |")
    return "\n".join(lines) + "\n"
