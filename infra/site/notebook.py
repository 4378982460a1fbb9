"""Turn a notebook into Markdown: its texts, and its cells as blocks of code."""

import json


def as_markdown(text: str) -> str:
    """Return the page."""
    parts = []
    for cell in json.loads(text)["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(parts) + "\n"
