"""Cache the columns that rules on generated texts read in a file, so that a cut joins only texts that are new.

Whether a text is current depends on the texts that it is made from: five joins over texts and their digests. Without
them, a re-cut of 1M images of which 236,000 have texts takes 1.6 CPU s instead of 3.2. A row is of a picture with the
sentence that it gets, by their numbers in the facts, so that facts which are extended keep it. It is valid while the
tables of texts have gained rows alone, and none of its picture; no threshold of a rule changes it. The file may be
deleted at any time.
"""

import hashlib
import json
from collections.abc import Sequence

import duckdb

from pairmill.catalog.cut.facts import facts_folder, unmodified_file, with_stamp
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import scratch_folder
from pairmill.catalog.pending.changed_inputs import count_rows
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.error import PairmillError
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.terms.scores import named_in
from pairmill.catalog.write.recorded_removals import last_removal

FILES = 8  # the last written ones, of other recipes too


class KeptTexts:
    """The cache file for the attached facts: the columns ``kept`` of the query ``rows``."""

    def __init__(self, lake: Lake, rows: str, kept: Sequence[str]) -> None:
        self._lake = lake
        numbers = lake.query("SELECT CAST(id AS VARCHAR) FROM facts.numbering")
        asked = json.dumps([duckdb.__version__, numbers, rows, list(kept)])
        self._name = f"texts-{hashlib.sha256(asked.encode()).hexdigest()[:16]}"
        known = (*declared(), *named_in(lake.tables))
        of_texts = {score.table for score in known if score.stage >= Stage.CAPTION and score.key == "sha256"}
        self._tables = sorted(of_texts & lake.tables)
        self._seen = self._count()

    def read(self) -> bool:
        """Create ``cut_known(n, picture, best, *kept)``, the valid rows in ``cut_survivors``; False without a file."""
        path = unmodified_file(facts_folder(self._lake), self._name)
        if path is None:
            return False
        try:
            self._lake.execute(f"ATTACH {quoted(str(path))} AS kept (READ_ONLY)")
            return self._read()
        except (PairmillError, duckdb.Error):  # damaged: DuckDB verifies each block
            path.unlink(missing_ok=True)
            return False
        finally:
            self._lake.execute("DETACH DATABASE IF EXISTS kept")

    def _read(self) -> bool:
        """Create ``cut_known`` from the attached file; return False if the tables of texts have lost rows since."""
        seen = {name: (n, newest) for name, n, newest in self._lake.query("SELECT name, n, newest FROM kept.seen")}
        upto = max(newest for _, newest in seen.values())
        counts = count_rows(self._lake, self._tables, "lake", upto)
        former = {name: each.rows - each.new for name, each in counts.items()}
        if last_removal(self._lake) > upto or any(seen.get(name, (0,))[0] != n for name, n in former.items()):
            return False
        since = [f'SELECT sha256 FROM {name} WHERE "commit" > {upto}' for name, each in counts.items() if each.new]
        new = f"SELECT facts.picture_of(sha256) FROM ({' UNION ALL '.join(since)})"
        without_new = f"ANTI JOIN (SELECT rowid AS picture FROM facts.pictures WHERE key IN ({new})) USING (picture)"
        self._lake.execute(
            "CREATE OR REPLACE TEMP TABLE cut_known AS SELECT n, t.* FROM cut_survivors JOIN kept.texts t "
            f"USING (picture, best){f' {without_new}' if since else ''}"
        )
        return True

    def keep(self) -> None:
        """Write ``cut_known`` to the file, unless the lake has changed meanwhile."""
        folder = facts_folder(self._lake)
        with scratch_folder(folder.parent) as unfinished:
            making = unfinished / folder.name
            self._lake.execute(
                f"ATTACH {quoted(str(making))} AS making; CREATE TABLE making.texts AS SELECT * EXCLUDE (n) FROM "
                f"cut_known; CREATE TABLE making.seen AS FROM (VALUES {self._seen}) s(name, n, newest); DETACH making"
            )
            if self._count() == self._seen:
                by_age = sorted(folder.glob("texts-*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
                former = [*folder.glob(f"{self._name}.*"), *by_age[FILES - 1 :]]
                making.rename(folder / with_stamp(self._name, making))
                for path in former:
                    path.unlink(missing_ok=True)

    def _count(self) -> str:
        """Return SQL values (name, number of rows, newest commit): of each table of texts, and of the removals."""
        counted = count_rows(self._lake, self._tables, "lake", -1).items()
        seen = ("removals", 0, last_removal(self._lake)), *((name, each.rows, each.newest) for name, each in counted)
        return ", ".join(map(str, seen))
