"""Make llms.txt, the list of pages that language models read first, and llms-full.txt, all pages in one text."""

import re
from pathlib import Path

import yaml

HEAD = """# Pairmill

> Pairmill turns web pages and folders of pictures into curated image-text datasets. It runs again without redoing work,
> and says of every picture why it is in or out. Command line `pairmill`, Python `import pairmill as pm`.
"""


def llms(settings: str, pages: Path) -> tuple[str, str]:
    """Return both texts, with the pages in the order of the navigation in ``settings``, the mkdocs.yml."""
    index, whole = [HEAD], [HEAD]
    for section in yaml.safe_load(settings.split("markdown_extensions:")[0])["nav"]:
        for title, entries in section.items():
            index.append(f"## {title}\n")
            for entry in entries if isinstance(entries, list) else [{title: entries}]:
                for name, page in entry.items():
                    text = (pages / page).read_text(encoding="utf-8")
                    index.append(f"- [{name}]({page.removesuffix('.md')}/): {_about(text)}")
                    whole.append(text)
            index.append("")
    return "\n".join(index), "\n\n".join(whole)


def _about(text: str) -> str:
    """Return the first sentence of a page."""
    prose = [part for part in re.split(r"\n\s*\n", text) if part[:1] not in "#`|-!<:" and part.strip()]
    first = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(prose[0].split())) if prose else ""
    return re.split(r"(?<=[.:])\s", first)[0][:200]
