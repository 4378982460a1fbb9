"""Write captions beside their images as one self-contained HTML file."""

from collections import Counter
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.flows.pages.renderer import render_whole, write_page
from pairmill.tasks.release.gallery.thumbnails import NONE, thumbnails

LONGEST = 2000  # characters shown of one caption


def write_strip(lake: Lake, recipe: Recipe, captions: list[dict[str, Any]], path: str, is_demo: bool = False) -> str:
    """Write ``captions``, rows of `captioned.first_captions`, with their images to the file ``path``; return ``path``.

    The file makes no requests and embeds the images as WebPs of some 8 KB each: share it only as you would share the
    images. An image whose source cannot be reached is left out. ``is_demo`` marks every caption as one by the small
    shipped captioner.
    """
    captioner = recipe.captioners[0]
    pictures = thumbnails(lake, [(row["sha256"], row["shard"]) for row in captions])
    html = render_whole(
        "caption_strip.html.j2",
        model=recipe.models[captioner.model],
        prompt=captioner.prompt,
        max_tokens=captioner.max_tokens,
        is_demo=is_demo,
        statuses=dict(Counter(row["status"] for row in captions).most_common()),
        captions=[{**row, "text": row["text"][:LONGEST], **pictures.get(row["sha256"], NONE)} for row in captions],
    )
    return write_page(html, path)
