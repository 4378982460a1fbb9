"""Find the written pages of the site, and rewrite their links and diagrams for it."""

import re
from pathlib import Path

from infra.site.diagram import as_svg

ROOT = Path(__file__).resolve().parents[2]
# Pages that stand beside what they document, and their names on the site.
ELSEWHERE = {
    "ARCHITECTURE.md": "architecture.md",
    ".github/CONTRIBUTING.md": "contributing.md",
    ".github/SECURITY.md": "security.md",
    "infra/REALSYN.md": "realsyn.md",
    "infra/SCALE.md": "at-full-size.md",
    "infra/bench/README.md": "bench.md",
    "infra/demo/README.md": "demo-world.md",
}
_LINK = re.compile(r"(\]\()([^)#\s]+)((?:#[^)]*)?\))")
_MAP = re.compile(r"<!-- map: .*?-->.*<!-- end of map -->", re.DOTALL)
_MERMAID = re.compile(r"```mermaid\n(.*?)```", re.DOTALL)


def source_pages() -> dict[Path, str]:
    """Return every written page with its name on the site."""
    docs = sorted([*(ROOT / "infra/docs").glob("*.md"), *(ROOT / "infra/docs").glob("*.ipynb")])
    elsewhere = {ROOT / place: name for place, name in ELSEWHERE.items() if (ROOT / place).exists()}
    return {path: f"{path.stem}.md" for path in docs} | elsewhere


def with_links(text: str, source: Path, places: dict[Path, str]) -> str:
    """Return a page with links to other pages by their names on the site, and diagrams drawn.

    A link to a file that is no page loses its address: it stays as text.
    """
    text = _MAP.sub("[The map of modules](modules.md) is a page of its own.", text)
    text = _MERMAID.sub(lambda found: as_svg(found[1]), text)

    def link(found: re.Match[str]) -> str:
        if "://" in found[2] or found[2].startswith("mailto:"):
            return found[0]
        target = (source.parent / found[2]).resolve()
        if target in places:
            return f"{found[1]}{places[target]}{found[3]}"
        return found[0]

    return _LINK.sub(link, text)
