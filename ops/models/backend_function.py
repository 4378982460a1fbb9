"""Import a function that a backend's declaration names."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from pairmill.catalog.terms.backend import Backend
from pairmill.ops.models.model_error import ModelError


def backend_function(backend: Backend, field: str) -> Callable[..., Any]:
    """Import the function that the field of a declaration names ('captioner', 'digest' …). Raises ModelError."""
    value: str = getattr(backend, field)
    module, _, name = value.partition(":")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ModelError(
            f"package '{backend.package}', backend '{backend.prefix}': its {field} {value} cannot be imported: "
            f"{error}. Update or uninstall the package."
        ) from error
