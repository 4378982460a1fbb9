"""Let pyarrow work without pandas in this process: importing pandas takes 0.3 to 0.5 CPU s.

At the first array that is built from Python values, pyarrow looks for pandas, once, to recognise a Series among them. A
command of Pairmill passes none. DuckDB looks for it at statements with parameters: see `literals`.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

import pyarrow as pa


class _NoPandas(MetaPathFinder):
    """Fail the import of pandas."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Raise ImportError for pandas; leave other modules to the other finders."""
        if fullname == "pandas":
            raise ImportError("not needed here")
        return None


def work_without_pandas() -> None:
    """Make pyarrow look for pandas now, and find none; do nothing if something has imported it already.

    Other code can import pandas as before. Do not call this in a user's own process: pyarrow would then take a Series
    for a plain sequence, whose NaN are no NULL.
    """
    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
