"""Make the page of all modules from their docstrings' first lines."""

from infra.module_map import module_map


def modules_page() -> str:
    """Return the page."""
    return f"# Map of modules\n\nEvery module in a line, from its docstring.\n\n{module_map()}\n"
