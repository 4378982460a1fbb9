"""Cache the columns that rules on generated texts read in a file, so that a cut joins only texts that are new.

Whether a text is current depends on the texts that it is made from: five joins over texts and their digests. Without
them, a re-cut of 1M images of which 236,000 have texts takes 1.6 CPU s instead of 3.2. A row is of a picture with the
sentence that it gets, by their numbers in the facts, so that facts which are extended keep it. It is valid while the
tables of texts have gained rows alone, and none of its picture; no threshold of a rule changes it. The file further
lists the pictures that have the first of their texts.
"""

import json
from collections.abc import Sequence

from pairmill.catalog.cut.kept_file import KeptFile
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.pending.changed_inputs import count_rows
from pairmill.catalog.terms.declared import declared
from pairmill.catalog.terms.score import Stage
from pairmill.catalog.terms.scores import named_in
from pairmill.catalog.write.recorded_removals import last_removal


class KeptTexts:
    """The cache file for the attached facts: the columns ``kept`` of the query ``rows``, and who has the first text.

    ``begun`` is SQL for (sha256, commit) of images that have the first of their generated texts.
    """

    def __init__(self, lake: Lake, rows: str, kept: Sequence[str], begun: str) -> None:
        self._lake, self._begun = lake, begun
        numbers = lake.query("SELECT CAST(id AS VARCHAR) FROM facts.numbering")
        self._file = KeptFile(lake, "texts", json.dumps([numbers, rows, list(kept), begun]), files=8)
        known = (*declared(), *named_in(lake.tables))
        of_texts = {score.table for score in known if score.stage >= Stage.CAPTION and score.key == "sha256"}
        self._tables = sorted(of_texts & lake.tables)
        self._pictures = lake.query("SELECT count(*) FROM facts.pictures")[0][0]
        self._seen = self._count()

    def read(self) -> bool:
        """Create ``cut_known(n, picture, best, *kept)``, the valid rows in ``cut_survivors``; False without a file.

        Create ``cut_with_text(picture)`` in either case: the pictures that have the first of their texts.
        """
        if self._file.read(self._read):
            return True
        of_all = pictures_of(f"SELECT sha256 FROM {self._begun}")
        self._lake.execute(f"CREATE OR REPLACE TEMP TABLE cut_with_text AS FROM {of_all}")
        return False

    def _read(self) -> bool:
        """Create ``cut_known`` from the attached file; return False if the tables of texts have lost rows since."""
        seen = {name: (n, newest) for name, n, newest in self._lake.query("SELECT name, n, newest FROM kept.seen")}
        upto = max(newest for _, newest in seen.values())
        counts = count_rows(self._lake, self._tables, "lake", upto)
        former = {name: each.rows - each.new for name, each in counts.items()}
        if last_removal(self._lake) > upto or any(seen.get(name, (0,))[0] != n for name, n in former.items()):
            return False
        since = [f'SELECT sha256 FROM {name} WHERE "commit" > {upto}' for name, each in counts.items() if each.new]
        without_new = f" ANTI JOIN {pictures_of(' UNION ALL '.join(since))} USING (picture)" if since else ""
        gained = []
        if since:
            gained.append(pictures_of(f'SELECT sha256 FROM {self._begun} WHERE "commit" > {upto}'))
        if self._pictures > (numbered := seen["pictures"][0]):  # a new number of a picture that is back with its texts
            gained.append(f"{pictures_of(f'SELECT sha256 FROM {self._begun}')} WHERE picture >= {numbered}")
        self._lake.execute(
            "CREATE OR REPLACE TEMP TABLE cut_known AS SELECT n, t.* FROM cut_survivors JOIN kept.texts t "
            f"USING (picture, best){without_new}; CREATE OR REPLACE TEMP TABLE cut_with_text AS "
            f"{' UNION ALL '.join(f'FROM {each}' for each in ('kept.with_text', *gained))}"
        )
        return True

    def keep(self) -> None:
        """Write ``cut_known`` to the file, unless the lake has changed meanwhile."""
        tables = {
            "texts": "SELECT * EXCLUDE (n) FROM cut_known",
            "with_text": "SELECT DISTINCT picture FROM cut_with_text",
            "seen": f"FROM (VALUES {self._seen}) s(name, n, newest)",
        }
        self._file.write(tables, lambda: self._count() == self._seen)

    def _count(self) -> str:
        """Return SQL values (name, number of rows, newest commit): of tables of texts, removals, numbered pictures."""
        counted = count_rows(self._lake, self._tables, "lake", -1).items()
        others = ("removals", 0, last_removal(self._lake)), ("pictures", self._pictures, 0)
        seen = *others, *((name, each.rows, each.newest) for name, each in counted)
        return ", ".join(map(str, seen))


def pictures_of(keys: str) -> str:
    """Return SQL for (picture): the numbers of the pictures whose sha256 the SQL ``keys`` selects."""
    return f"(SELECT rowid AS picture FROM facts.pictures WHERE key IN (SELECT facts.picture_of(sha256) FROM ({keys})))"
