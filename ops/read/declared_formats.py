"""Collect every format that this installation declares: Pairmill's own and those of other packages.

To add a format to Pairmill, add a file to ``formats`` with a class that implements ``Format`` and its instance in
``FORMATS``. Another package names such an instance as an entry point of the group ``pairmill.formats``.
"""

import importlib
import re
from functools import cache
from pkgutil import iter_modules
from typing import Any, cast

from pairmill.catalog.terms.declared import foreign
from pairmill.catalog.terms.error import PairmillError
from pairmill.ops.read import formats as own
from pairmill.ops.read.document import Format

GROUP = "pairmill.formats"
FORMAT_NAME = re.compile(r"[a-z][a-z0-9_]{2,31}")
_TYPES: dict[str, type] = {
    "name": str, "turn": int, "version": int, "expects": str, "suffixes": frozenset,
}  # fmt: skip


@cache
def formats() -> dict[str, Format]:
    """Return name -> format of all declared formats, sorted by turn; at an equal turn Pairmill's own come first.

    Raises PairmillError for an invalid format.
    """
    found: list[tuple[str, Format]] = [("pairmill", format) for format in own_formats()]
    found += foreign(GROUP, "format", _as_format)
    packages: dict[str, str] = {}
    for package, format in found:
        if (other := packages.setdefault(format.name, package)) != package:
            raise PairmillError(
                f"the packages '{package}' and '{other}' both declare the format '{format.name}'. Uninstall one."
            )
    return {format.name: format for _, format in sorted(found, key=lambda each: each[1].turn)}


def own_formats() -> list[Format]:
    """Return every format that a module of the package ``formats`` lists in ``FORMATS``."""
    modules = [importlib.import_module(f"{own.__name__}.{found.name}") for found in iter_modules(own.__path__)]
    return [format for module in modules for format in getattr(module, "FORMATS", ())]


def _as_format(loaded: object, value: str) -> Format:
    """Return a loaded object that implements Format. Raise ValueError with the first thing that it lacks."""
    for name, kind in _TYPES.items():
        if not isinstance(getattr(loaded, name, None), kind):
            raise ValueError(f"{value} is no ops.read.document.Format: it has no `{name}` of type {kind.__name__}")
    for name in ("claim", "read"):
        if isinstance(loaded, type) or not callable(getattr(loaded, name, None)):
            raise ValueError(f"{value} is no instance of an ops.read.document.Format with a method `{name}`")
    format = cast(Any, loaded)
    if not FORMAT_NAME.fullmatch(format.name):
        raise ValueError(f"'{format.name}' is no name of 3 to 32 letters, digits and underscores in lower case")
    return format
