"""Pairmill: curate image–text datasets from pages and pictures.

``import pairmill as pm``: `pm.run` curates, `pm.open` reads a lake. Names are imported when they are first used, because
the command line imports this package too.
"""

import importlib
import os
import resource
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe as Recipe
    from pairmill.catalog.terms.error import PairmillError as PairmillError
    from pairmill.flows.api.opened_lake import OpenLake as OpenLake
    from pairmill.flows.api.opened_lake import open_lake as open
    from pairmill.flows.api.pair import Pair as Pair
    from pairmill.flows.api.pair_dataset import PairDataset as PairDataset
    from pairmill.flows.python_run import RunResult as RunResult
    from pairmill.flows.python_run import load as recipe
    from pairmill.flows.python_run import preflight as preflight
    from pairmill.flows.python_run import run as run
    from pairmill.flows.run.settings import Compute as Compute

_HOMES = {
    "Compute": "flows.run.settings:Compute",
    "OpenLake": "flows.api.opened_lake:OpenLake",
    "Pair": "flows.api.pair:Pair",
    "PairDataset": "flows.api.pair_dataset:PairDataset",
    "PairmillError": "catalog.terms.error:PairmillError",
    "Recipe": "catalog.recipe.recipe:Recipe",
    "RunResult": "flows.python_run:RunResult",
    "open": "flows.api.opened_lake:open_lake",
    "preflight": "flows.python_run:preflight",
    "recipe": "flows.python_run:load",
    "run": "flows.python_run:run",
}
if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
    # Arrow's own allocator reserves 1 GiB of addresses at once: of 1.5 GB too little is left for a command of 0.9.
    os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
__all__ = list(_HOMES)  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    """Import a public name at its first use. Raises AttributeError for any other."""
    if name not in _HOMES:
        raise AttributeError(f"module 'pairmill' has no attribute {name!r}")
    module, _, attribute = _HOMES[name].partition(":")
    found = getattr(importlib.import_module(f"pairmill.{module}"), attribute)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return [*globals(), *_HOMES]
