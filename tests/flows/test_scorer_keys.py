"""Check that code asks for scorers by keys that runs set: `Plan.scorer` returns '' for others, which matches no row."""

import re
from pathlib import Path

from pairmill.catalog.terms.declared import declared
from tests.worlds.generated import ROOT
from tests.worlds.line import rows

ASKED = re.compile(r"""\bscorers?(?:\.get)?\(["']([a-z_]+)["']""")


def test_every_key_that_code_asks_for_is_one_that_a_run_or_a_score_has(curated: Path) -> None:
    used = {name for (name,) in rows(curated, "SELECT name FROM scorers")} | {score.table for score in declared()}
    code = {file: file.read_text() for part in ("catalog", "tasks", "flows") for file in (ROOT / part).rglob("*.py")}
    asked = {key: str(file) for file, text in code.items() for key in ASKED.findall(text)}
    assert len(asked) > 10 and not {key: file for key, file in asked.items() if key not in used}
