"""Parse YAML that a user wrote: whatever is wrong with it is one ValueError."""

from typing import Any

import yaml
from yaml.composer import ComposerError

# Beside its own errors yaml lets through those of int() and dates ('2024-99-99'), of a tag on what is none, of depth.
_FAULTS = (yaml.YAMLError, ValueError, TypeError, OverflowError)


def parsed(text: str) -> Any:
    """Return the value of a YAML text. Raises ValueError with what is wrong and its line, also for a key that stands
    twice, and for a text nested some hundred deep."""
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except AttributeError:
        raise ValueError("a value is not what its tag says") from None
    except _FAULTS as error:
        raise ValueError(_in_a_line(error)) from error


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, of which YAML's own loader takes the last without a word."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        first: dict[tuple[str, str], Any] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                before = first.setdefault((key.tag, key.value), key)
                if before is not key:
                    where = f"it stands on line {before.start_mark.line + 1} already"
                    why = f"the key '{key.value[:80]}' stands twice ({where}); leave one of them out"
                    raise ComposerError(None, None, why, key.start_mark)
        return node


def _in_a_line(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split())
    context = f"{context} " if (context := getattr(error, "context", None)) else ""
    return f"line {mark.line + 1}, column {mark.column + 1}: {context}{getattr(error, 'problem', '')}"
