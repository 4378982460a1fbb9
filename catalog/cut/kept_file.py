"""Store tables that a cut has computed in a file beside the facts, so that the next process need not compute them.

Such a file may be deleted at any time. Its name has a digest of all that its tables depend on, its size and its time of
modification, so none is read that is outdated or was modified. DuckDB verifies each block that it reads.
"""

import hashlib
from collections.abc import Callable, Mapping

import duckdb

from pairmill.catalog.cut.facts import facts_folder, newest_first, unmodified_file, with_stamp
from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.lake.side_folders import scratch_folder
from pairmill.catalog.terms.error import PairmillError


class KeptFile:
    """One cache file in the folder of the facts, named by ``kind`` and a digest of ``asked``.

    ``asked`` names all that its tables depend on. `write` removes all files of this kind but the ``files`` newest.
    """

    def __init__(self, lake: Lake, kind: str, asked: str, files: int) -> None:
        self._lake, self._kind, self._files = lake, kind, files
        self._name = f"{kind}-{hashlib.sha256(f'{duckdb.__version__} {asked}'.encode()).hexdigest()[:16]}"

    def read(self, step: Callable[[], bool]) -> bool:
        """Attach the file as database ``kept``, call ``step`` and return its result; return False if there is no file.

        A damaged file is removed, and counts as none.
        """
        if path := unmodified_file(facts_folder(self._lake), self._name):
            try:
                self._lake.execute(f"ATTACH {quoted(str(path))} AS kept (READ_ONLY)")
                return step()
            except (PairmillError, duckdb.Error):
                path.unlink(missing_ok=True)
            finally:
                self._lake.execute("DETACH DATABASE IF EXISTS kept")
        return False

    def write(self, tables: Mapping[str, str], is_current: Callable[[], bool]) -> None:
        """Write ``tables``, SQL by name, in place of a former file, unless they are not current any more."""
        folder = facts_folder(self._lake)
        with scratch_folder(folder.parent) as unfinished:
            making = unfinished / folder.name
            created = "; ".join(f"CREATE TABLE making.{table} AS {rows}" for table, rows in tables.items())
            try:
                self._lake.execute(f"ATTACH {quoted(str(making))} AS making; {created}")
            finally:
                self._lake.execute("DETACH DATABASE IF EXISTS making")
            if is_current():
                newest = newest_first(folder.glob(f"{self._kind}-*"))
                former = [*folder.glob(f"{self._name}.*"), *newest[self._files - 1 :]]
                making.rename(folder / with_stamp(self._name, making))
                for path in former:
                    path.unlink(missing_ok=True)
