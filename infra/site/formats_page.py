"""Make the page of the formats that are read from their declarations."""

from infra.site.markdown import code, table
from pairmill.ops.read.declared_formats import own_formats


def formats_page() -> str:
    """Return the page: formats in the order in which they claim their files."""
    rows = [
        (code(format.name), format.expects, " ".join(sorted(format.suffixes)), format.version)
        for format in sorted(own_formats(), key=lambda each: each.turn)
    ]
    return (
        "# Formats\n\nA file's content decides which format reads it, its name only where the content does not. "
        "Formats claim files in this order. Name one before a place to force it: `--source url_list:photos.jsonl`. A "
        "rise of a format's version reads its units again. [Name sources](sources.md) has a command for each.\n\n"
        f"{table(['format', 'what', 'usual endings', 'version'], rows)}\n"
    )
