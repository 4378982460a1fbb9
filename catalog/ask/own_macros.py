"""Provide the lake's own macros and the view `sentence_decisions` to a user's statement that names them."""

import re

from pairmill.catalog.ask import datasets
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.macros import MACROS, definitions

DECISIONS = "sentence_decisions"
_NAMED = re.compile(rf"\b({'|'.join([*MACROS, DECISIONS])})\b", re.IGNORECASE)


def provide(lake: Lake, sql: str) -> None:
    """Create what ``sql`` names as TEMP, also where the lake stores a macro: an older lake lacks it or has another.

    Verifies the files of the tables that a macro reads, which the statement does not name.
    """
    named = {name.lower() for name in _NAMED.findall(sql)}
    if DECISIONS in named:
        from pairmill.catalog.ask.sentence_decisions import sentence_decisions  # reads of recipes, 0.16 s

        versions = datasets.published(lake)
        lake.execute(f"CREATE OR REPLACE TEMP VIEW {DECISIONS} AS {sentence_decisions(lake, versions)}")
        named.remove(DECISIONS)
    for name, definition in definitions().items() if named else ():
        lake.execute(f"CREATE OR REPLACE TEMP MACRO {definition}")
        for table in MACROS[name] if name in named else ():
            lake.check_files(table)
