"""Put a package with entry points where importlib finds it, without pip."""

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def install(patch: pytest.MonkeyPatch, site: Path, package: str, group: str, points: dict[str, str]) -> None:
    """Declare the entry points of a package in the folder ``site``, and import from there."""
    information = site / f"{package}-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    lines = "".join(f"{name} = {value}\n" for name, value in points.items())
    (information / "entry_points.txt").write_text(f"[{group}]\n{lines}")
    if str(site) not in sys.path:
        patch.syspath_prepend(str(site))


@contextmanager
def declaring(
    patch: pytest.MonkeyPatch, site: Path, sources: Path, group: str, forget: Callable[[], None]
) -> Iterator[Callable[[str, str], None]]:
    """Yield ``declare(package, entry)``, which declares one entry point of ``group``.

    Args:
        patch: What it changes is undone at the end.
        site: Folder for the package's description.
        sources: Folder from which the package is imported.
        group: The entry point group.
        forget: Clears the cache of the group's declarations.
    """
    patch.syspath_prepend(str(sources))

    def declare(package: str, entry: str) -> None:
        patch.delitem(sys.modules, entry.partition(":")[0], raising=False)
        importlib.invalidate_caches()
        install(patch, site, package, group, {"one": entry})
        forget()

    yield declare
    patch.undo()
    forget()
