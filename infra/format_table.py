"""Write the docs' table of the formats that are read, from the formats' examples: ``python infra/format_table.py``.

``--check`` changes nothing and fails if the table is not up to date.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.format_examples import EXAMPLES  # noqa: E402
from infra.generated import rewrite  # noqa: E402
from pairmill.ops.read.declared_formats import own_formats  # noqa: E402

START, END = "<!-- formats: made by infra/format_table.py -->", "<!-- end of formats -->"


def format_table() -> str:
    """Return the table in Markdown: formats of any folder before those of special files."""
    lines = ["| what | on this machine | on S3 |", "|---|---|---|"]
    for format in sorted(own_formats(), key=lambda each: -each.turn):
        for example in EXAMPLES[format.name]:
            here, there = (f"`pairmill run 30m --source {place}{example.source}`" for place in ("", "s3://bucket/"))
            lines.append(f"| {example.what} | {here} | {there} |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(rewrite(ROOT / "infra/docs/sources.md", START, END, format_table(), sys.argv[1:]))
