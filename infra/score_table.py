"""Write the docs' table of the columns that rules read, from the scores' declarations: ``python infra/score_table.py``.

``--check`` changes nothing and fails if the table is not up to date.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from infra.generated import rewrite  # noqa: E402
from pairmill.catalog.terms.declared import scores_of  # noqa: E402
from pairmill.catalog.terms.scores import OWN, OWN_COLUMNS  # noqa: E402

START, END = "<!-- columns: made by infra/score_table.py -->", "<!-- end of columns -->"


def score_table() -> str:
    """Return the table in Markdown."""
    lines = ["| column | type | what it is | from |", "|---|---|---|---|"]
    for kind, base in OWN_COLUMNS.items():
        lines += [f"| `{name}` | {sql_type} | {meaning} | the {kind} |" for name, (sql_type, meaning) in base.items()]
        lines += [
            f"| `{column.rule_name}` | {column.type} | {column.meaning} | `{score.table}` |"
            for score in scores_of(kind, OWN)
            for column in score.columns
            if column.rule_name
        ]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(rewrite(ROOT / "infra/docs/scores.md", START, END, score_table(), sys.argv[1:]))
