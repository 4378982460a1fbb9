"""Parse YAML written by a user: every fault is raised as one ValueError."""

from typing import Any

import yaml
from yaml.composer import ComposerError

# Besides its own errors, yaml raises those of int() and dates ('2024-99-99'), of wrong tags and of deep nesting.
_PLAIN = {
    "expected <block end>": "this line does not fit the indentation of the lines above it; align it with them",
    "expected ',' or": "a bracket or a quote is not closed; close it, or put the value into quotes",
    "found character '\\t'": "a tab stands where a value begins; indent with spaces",
    "mapping values are not allowed": "a second colon stands in one line; put the value into quotes",
}  # the beginning of PyYAML's message: what a user can do
_FAULTS = (yaml.YAMLError, ValueError, TypeError, OverflowError)


def parse_yaml(text: str) -> Any:
    """Parse a YAML text. Raise ValueError with the fault and its line.

    A repeated key is a fault, and so is nesting some hundred levels deep.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except AttributeError:
        raise ValueError("a value is not what its tag says") from None
    except _FAULTS as error:
        raise ValueError(_in_a_line(error)) from error


class _Loader(yaml.SafeLoader):
    """YAML loader that refuses a repeated key in a mapping; the standard loader silently takes the last value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Compose a mapping node. Raise ComposerError for a repeated key."""
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
    """Return a YAML error on one line, with line and column if known."""
    if (mark := getattr(error, "problem_mark", None)) is None:
        return " ".join(str(error).split())
    where, problem = f"line {mark.line + 1}, column {mark.column + 1}", getattr(error, "problem", None) or ""
    for beginning, plain in _PLAIN.items():
        if problem.startswith(beginning):
            return f"{where}: {plain}"
    context = f"{context} " if (context := getattr(error, "context", None)) else ""
    return f"{where}: {context}{problem}"
