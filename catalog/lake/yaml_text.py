"""Parse YAML that a user wrote: whatever is wrong with it is one ValueError."""

from typing import Any

import yaml

# Beside its own errors yaml lets through those of int() and dates ('2024-99-99'), of a tag on what is none, of depth.
_FAULTS = (yaml.YAMLError, ValueError, TypeError, OverflowError)


def parsed(text: str) -> Any:
    """Return the value of a YAML text. Raises ValueError with what is wrong, also for one nested some hundred deep."""
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except AttributeError:
        raise ValueError("a value is not what its tag says") from None
    except _FAULTS as error:
        raise ValueError(str(error)) from error
