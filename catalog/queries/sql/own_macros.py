"""Create the SQL macros of `comments.py` and the view `sentence_decisions` for a user's statement that names them."""

import re
from collections.abc import Callable

from pairmill.catalog.lake.comments import MACROS, definitions, nearest
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.queries import datasets

DECISIONS = "sentence_decisions"
_NAMED = re.compile(rf"\b({'|'.join([*MACROS, DECISIONS])})\b", re.IGNORECASE)


def provide(lake: Lake, sql: str) -> None:
    """Create the macros and the view that ``sql`` names, as temporary ones of this connection.

    A macro that the lake stores is created too, because an older lake may store an older definition.

    Verifies the files of the tables that a macro reads, which the statement does not name.
    """
    named = {name.lower() for name in _NAMED.findall(sql)}
    if DECISIONS in named:
        from pairmill.catalog.queries.sql.sentence_decisions import sentence_decisions  # reads of recipes, 0.16 s

        versions = datasets.published(lake)
        lake.execute(f"CREATE OR REPLACE TEMP VIEW {DECISIONS} AS {sentence_decisions(lake, versions)}")
        named.remove(DECISIONS)
    for name, definition in definitions().items() if named else ():
        lake.execute(f"CREATE OR REPLACE TEMP MACRO {definition}")
        for table in MACROS[name] if name in named else ():
            lake.check_files(table)


def provide_pictures_of_words(lake: Lake, scorer: str, embed: Callable[[str], bytes]) -> None:
    """Create ``pictures_of_words(words, n := 10)`` over the vectors of ``scorer``; ``embed`` gives a text's vector."""
    lake.connection.create_function("vector_of_words", embed, ["VARCHAR"], "BLOB")  # pyright: ignore[reportArgumentType]
    provide(lake, "nearest_pictures vector_values")
    query = f"SELECT {quoted(scorer)} AS scorer, '' AS sha256, vector_of_words(words) AS image_vector"
    lake.execute(f"CREATE OR REPLACE TEMP MACRO pictures_of_words(words, n := 10) AS TABLE {nearest(query)}")
