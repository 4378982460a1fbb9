"""Draw a lake and its datasets as HTML for a notebook: versions, pictures with their texts."""

import base64
import io
from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pairmill.flows.api.answer_types import PublishedVersion
    from pairmill.flows.api.pair import Pair

SIDE = 160  # pixels of a picture


def lake_html(uri: str, versions: Iterable["PublishedVersion"]) -> str:
    """Draw a lake as a table of its published versions."""
    rows = [(each.dataset, f"{each.pairs:,}", each.tags, f"{each.created:%Y-%m-%d %H:%M}") for each in versions]
    cells = "".join(f"<tr>{''.join(f'<td>{escape(str(cell))}</td>' for cell in row)}</tr>" for row in rows)
    heads = "<tr><th>dataset</th><th>pairs</th><th>tags</th><th>published</th></tr>"
    return f"<p>lake {escape(uri)}</p><table>{heads}{cells}</table>"


def pairs_html(title: str, pairs: Iterable["Pair"]) -> str:
    """Draw pairs as pictures of SIDE pixels with their texts beside them."""
    rows = []
    for pair in pairs:
        texts = "".join(f"<p><b>{escape(name)}</b> {escape(text)}</p>" for name, text in pair.texts.items())
        picture, packed = pair.image, io.BytesIO()
        picture.thumbnail((SIDE, SIDE))
        picture.save(packed, "WEBP")
        shown = f'<img src="data:image/webp;base64,{base64.b64encode(packed.getvalue()).decode()}">'
        rows.append(f'<tr><td>{shown}</td><td style="text-align:left">{texts}</td></tr>')
    return f"<p>{escape(title)}</p><table>{''.join(rows)}</table>"
