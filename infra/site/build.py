"""Build the documentation site: ``python -m infra.site.build``, into build/docs/site.

The pages of infra/docs, those beside what they document, and pages made from the code go into one folder. zensical
builds it with strict links; ``mkdocs build -f build/docs/mkdocs.yml`` with mkdocs-material builds the same.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from infra.site.commands_page import commands_page
from infra.site.formats_page import formats_page
from infra.site.lake_pages import reasons_page, scorers_page, tables_page
from infra.site.llms import llms
from infra.site.messages_page import messages_page
from infra.site.modules_page import modules_page
from infra.site.notebook import as_markdown
from infra.site.pages import ROOT, source_pages, with_links
from infra.site.recipe_page import recipe_page

MADE = {
    "commands.md": commands_page,
    "recipe-settings.md": recipe_page,
    "formats.md": formats_page,
    "tables.md": tables_page,
    "quarantine-reasons.md": reasons_page,
    "scorers.md": scorers_page,
    "messages.md": messages_page,
    "modules.md": modules_page,
}


def write_pages(folder: Path) -> None:
    """Write all pages, pictures and the configuration below ``folder``, anew."""
    shutil.rmtree(folder, ignore_errors=True)
    pages = folder / "pages"
    pages.mkdir(parents=True)
    places = source_pages()
    for source, name in places.items():
        text = source.read_text(encoding="utf-8")
        if source.suffix == ".ipynb":
            text = as_markdown(text)
        (pages / name).write_text(with_links(text, source, places), encoding="utf-8")
    for name, make in MADE.items():
        (pages / name).write_text(make(), encoding="utf-8")
    for picture in (ROOT / "infra/docs").glob("*.webp"):
        shutil.copy(picture, pages)
    shutil.copytree(ROOT / "infra/docs/style", pages / "style")
    settings = (ROOT / "infra/docs/mkdocs.yml").read_text(encoding="utf-8")
    (folder / "mkdocs.yml").write_text(settings.replace("PACKAGE_PATH", str(ROOT / "infra/package")), encoding="utf-8")
    index, whole = llms(settings, pages)
    (pages / "llms.txt").write_text(index, encoding="utf-8")
    (pages / "llms-full.txt").write_text(whole, encoding="utf-8")


def main() -> int:
    """Build the site; return the exit status of zensical."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/docs", help="a folder that is written anew")
    out = parser.parse_args().out
    write_pages(out)
    done = subprocess.run(
        [sys.executable, "-m", "zensical", "build", "--strict", "-f", "mkdocs.yml"], cwd=out, check=False
    )
    if not done.returncode:
        print(f"open {out / 'site/index.html'}")
    return done.returncode


if __name__ == "__main__":
    raise SystemExit(main())
