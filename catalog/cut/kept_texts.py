"""Keep beside the facts what the rules on generated texts read, so that a re-cut joins no texts.

Whether a text is current depends on the texts that it is made from: five joins over texts and their digests. Without
them, a re-cut of 1M images of which 236,000 have texts takes 1.6 CPU s instead of 3.2. A row is of a picture with the
sentence that it gets, by their numbers in the facts, so that facts which are extended keep it. It is valid while the
files of the generated rows stay the same; no threshold of a rule changes it. The file may be deleted at any time.
"""

import hashlib
import json
from collections.abc import Sequence

import duckdb

from pairmill.catalog.cut.facts import data_digest, facts_folder, unmodified_file, with_stamp
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import scratch_folder
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.terms.scores import named_in
from pairmill.catalog.write.recorded_removals import last_removal


def name_of(lake: Lake, rows: str, kept: Sequence[str]) -> str:
    """Return the cache file's name: digests of the query ``rows``, its columns ``kept``, and the rows that it reads."""
    tables = [score.table for score in (*declared(), *named_in(lake.tables)) if score.stage >= Stage.CAPTION]
    numbers = lake.query("SELECT CAST(id AS VARCHAR) FROM facts.numbering")
    asked = json.dumps([duckdb.__version__, numbers, last_removal(lake), rows, list(kept)])
    return f"texts-{data_digest(lake, 'lake', tables)}-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"


def read(lake: Lake, name: str) -> bool:
    """Create ``cut_known(n, picture, best, *kept)`` of the images in ``cut_survivors``; return False without a file."""
    path = unmodified_file(facts_folder(lake), name)
    if path is None:
        return False
    try:
        lake.execute(f"ATTACH {quoted(str(path))} AS kept (READ_ONLY)")
        lake.execute(
            "CREATE OR REPLACE TEMP TABLE cut_known AS SELECT n, t.* FROM cut_survivors JOIN kept.texts t "
            "USING (picture, best)"
        )
    except (PairmillError, duckdb.Error):  # damaged: DuckDB verifies each block
        path.unlink(missing_ok=True)
        return False
    finally:
        lake.execute("DETACH DATABASE IF EXISTS kept")
    return True


def keep(lake: Lake, name: str, rows: str, kept: Sequence[str]) -> None:
    """Write ``cut_known`` to the file ``name``, unless the lake has changed meanwhile; remove files of other inputs."""
    folder = facts_folder(lake)
    with scratch_folder(folder.parent) as unfinished:
        making = unfinished / folder.name
        lake.execute(f"ATTACH {quoted(str(making))} AS making")
        lake.execute("CREATE TABLE making.texts AS SELECT * EXCLUDE (n) FROM cut_known; DETACH making")
        for former in folder.glob("texts-*"):
            if not former.name.startswith(name.rpartition("-")[0]):
                former.unlink(missing_ok=True)
        if name_of(lake, rows, kept) == name:
            making.rename(folder / with_stamp(name, making))
