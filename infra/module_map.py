"""Write README's map of modules from their docstrings' first lines: ``python infra/module_map.py``.

``--check`` changes nothing and fails when the map is not up to date.
"""

import ast
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START, END = "<!-- map: made by infra/module_map.py -->", "<!-- end of map -->"
FOLDERS = {
    "flows": "what happens, in order: the recipe read aloud",
    "tasks": "one step each, where a table meets a batch",
    "ops": "how, for one batch: plain Python, numpy, torch",
    "catalog": "what is true: the only place where state changes",
}


def module_map() -> str:
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


def main(arguments: list[str]) -> int:
    readme = ROOT / "README.md"
    text = readme.read_text(encoding="utf-8")
    before, rest = text.split(START)
    after = rest.split(END)[1]
    wanted = f"{before}{START}\n{module_map()}\n{END}{after}"
    if arguments == ["--check"]:
        if wanted != text:
            print("README's map of modules is not up to date; run: python infra/module_map.py", file=sys.stderr)
        return int(wanted != text)
    readme.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
