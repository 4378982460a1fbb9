"""Write ARCHITECTURE.md's map of modules from their docstrings' first lines: ``python infra/module_map.py``.

``--check`` changes nothing and fails if the map is not up to date.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.generated import rewrite  # noqa: E402

START, END = "<!-- map: made by infra/module_map.py -->", "<!-- end of map -->"
FOLDERS = {
    "flows": "what happens, in order: the recipe read aloud",
    "tasks": "one step each, where a table meets a batch",
    "ops": "how, for one batch: plain Python, numpy, torch",
    "catalog": "what is true: the only place where state changes",
}


def module_map() -> str:
    """Return the map in Markdown.

    Raises:
        SystemExit: A module has no docstring.
    """
    lines = ["| module | what it is |", "|---|---|"]
    for folder, meaning in FOLDERS.items():
        lines.append(f"| **{folder}/** | **{meaning}** |")
        for path in sorted((ROOT / folder).rglob("*.py")):
            if path.name != "__init__.py":
                doc = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
                if not doc:
                    raise SystemExit(f"{path.relative_to(ROOT)} has no docstring; give it a line that says what it is")
                lines.append(f"| `{path.relative_to(ROOT)}` | {doc.splitlines()[0].rstrip('.')} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(rewrite(ROOT / "ARCHITECTURE.md", START, END, module_map(), sys.argv[1:]))
