"""Substitute the parameters of a SQL statement as literals, and let pyarrow work without pandas.

At its first statement with parameters, DuckDB 1.5.5 imports pandas (0.28 CPU s), whatever the parameters are. Commands
that read a lake need no pandas, so numbers and texts, which are nearly all parameters, become literals.
"""

import math
import re
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib.abc import MetaPathFinder
from typing import Any

LONGEST_LIST = 1_000  # parsing a million literals takes longer than importing pandas
_UNFIT = re.compile("[\0\ud800-\udfff]")  # NUL, and lone surrogates, which UTF-8 cannot encode
_TOKENS = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|--[^\n]*|\?")


def quoted(text: str) -> str:
    """Return ``text`` as a SQL string literal."""
    return "'" + text.replace("'", "''") + "'"


def is_fit(text: str) -> bool:
    """Return whether an SQL statement can hold a text: the text has no NUL and no lone surrogate."""
    return not _UNFIT.search(text)


def with_literals(sql: str, params: Sequence[Any]) -> tuple[str, list[Any]]:
    """Return the statement with its parameters as literals, and the remaining parameters.

    None remain, or all if one has no literal form or if they are numbered (``$1``).
    """
    literals = [_literal(value) for value in params]
    places = sum(found[0] == "?" for found in _TOKENS.finditer(sql)) if params else 0
    if None in literals or places != len(params):
        return sql, list(params)
    waiting = iter(literals)
    return _TOKENS.sub(lambda found: str(next(waiting)) if found[0] == "?" else found[0], sql), []


def _literal(value: Any) -> str | None:
    """Return a literal of the type that the parameter would have; None for a value that must stay a parameter."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and -(2**63) < value < 2**64:
        return f"({value})" if value < 2**63 else f"({value}::UBIGINT)"
    if isinstance(value, float) and math.isfinite(value):
        return f"({value!r}::DOUBLE)"
    if isinstance(value, str) and is_fit(value):
        return quoted(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        return f"'{value.isoformat()}'::TIMESTAMPTZ"
    if isinstance(value, list | tuple) and len(value) <= LONGEST_LIST and {*map(type, value)} in (set(), {str}, {int}):
        each = [_literal(text) for text in value]
        return None if None in each else f"[{', '.join(map(str, each))}]"
    return None


class _NoPandas(MetaPathFinder):
    """Fail the import of pandas."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Raise ImportError for pandas; leave other modules to the other finders."""
        if fullname == "pandas":
            raise ImportError("not needed here")


def work_without_pandas() -> None:
    """Make pyarrow search for pandas now, once, and find nothing; do nothing if pandas is already imported.

    At the first array that is built from Python values, pyarrow looks for pandas, once, to recognise a Series among
    them: 0.3 to 0.5 CPU s. Other code can import pandas as before. Do not call this in a user's own process: pyarrow
    would then take a Series for a plain sequence, whose NaN are no NULL.
    """
    if "pandas" in sys.modules:
        return
    import pyarrow as pa  # 0.1 CPU s, which commands that only read save

    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
