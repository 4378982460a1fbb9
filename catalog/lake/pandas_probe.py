"""Keep DuckDB's client from importing pandas, which it does to look whether a statement's first parameter is its NaT.

That costs 0.3 to 0.5 CPU seconds, numpy and pyarrow included, of a command that takes less. Nothing here makes data
frames. A process that has pyarrow is left alone: pyarrow looks for pandas in the same way, and remembers the answer.
"""

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec


class _NoPandas(MetaPathFinder):
    """Find no pandas for an import that a line of `catalog` runs into: no such line imports it by itself."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname == "pandas" and "pyarrow" not in sys.modules and _importer().startswith("catalog."):
            raise ModuleNotFoundError("DuckDB looks for pandas, which is not used", name=fullname)
        return None


def refuse_pandas() -> None:
    """Have DuckDB go without pandas from now on."""
    if not any(isinstance(finder, _NoPandas) for finder in sys.meta_path):
        sys.meta_path.insert(0, _NoPandas())


def _importer() -> str:
    """Return the module whose line runs into the import."""
    frame = sys._getframe(2)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("importlib."):
        frame = frame.f_back
    return frame.f_globals.get("__name__", "")
