"""Read a document in reading order: its pictures and its sentences, each with what a version decided on it.

The lake numbers pictures and sentences separately, so a page shows two rows side by side, not one.
"""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.contents import homes_of_images
from pairmill.catalog.pending.eligible import sentence_rows
from pairmill.catalog.queries.explain.why import Facts, Scope
from pairmill.catalog.queries.explain.why_image import explain_image
from pairmill.catalog.terms.score import Stage

MOST = 400  # pictures, and sentences, of one document that are read


@dataclass(frozen=True)
class PicturePage:
    """An image by its parts (see `explain_image`), and its document in reading order (see `document_items`)."""

    facts: Facts
    document: Facts


def picture_page(lake: Lake, image_id: str, scope: Scope) -> PicturePage | None:
    """Explain an image with its document; None if the lake does not have it."""
    with lake.one_snapshot():
        if not homes_of_images(lake, [image_id]):
            return None
        facts = explain_image(lake, image_id, scope)
        return PicturePage(facts, document_items(lake, facts["origin"]["document_id"], scope))


def document_items(lake: Lake, document_id: str, scope: Scope) -> Facts:
    """Return ``pictures``, ``sentences`` and, if MOST are exceeded, ``more``: how many of both are left out.

    ``dropped_by`` is None without a decision, '' for what is kept. A sentence's is that of the rules: which sentence of
    a group of duplicates stands for it is not looked up.
    """
    pictures, sentences = _pictures(lake, document_id, scope), _sentences(lake, document_id)
    more = max(0, len(pictures) - MOST) + max(0, len(sentences) - MOST)
    fates = _fates(lake, sentences[:MOST], scope)
    shown: list[dict[str, Any]] = [{**row, **fates.get(row["content"], _UNDECIDED)} for row in sentences[:MOST]]
    return {"pictures": pictures[:MOST], "sentences": shown, "more": more}


_UNDECIDED = {"dropped_by": None, "value": ""}


def _pictures(lake: Lake, document_id: str, scope: Scope) -> list[Facts]:
    """Select the document's pictures, each position once."""
    name, version = (scope.dataset.name, scope.dataset.version) if scope.dataset else ("", 0)
    of_document = f"SELECT * FROM images WHERE document_id = {quoted(document_id)}"
    once = "QUALIFY row_number() OVER (PARTITION BY image_id ORDER BY commit DESC) = 1"
    decided = f"SELECT item_id, dropped_by, value FROM decisions WHERE dataset = {quoted(name)} AND version = {version}"
    sql = (
        f"SELECT i.image_id, i.sha256, i.position, i.url, i.alt_text, d.dropped_by, d.value "
        f"FROM ({of_document} {once}) i "
        f"LEFT JOIN ({decided}) d ON d.item_id = i.image_id ORDER BY i.position, i.image_id"
    )
    return lake.rows(sql)


def _sentences(lake: Lake, document_id: str) -> list[Facts]:
    """Select the document's sentences, each position once."""
    sql = f"SELECT DISTINCT position, content, text FROM sentences WHERE document_id = {quoted(document_id)}"
    return lake.rows(f"{sql} ORDER BY position, content")


def _fates(lake: Lake, sentences: list[Facts], scope: Scope) -> dict[str, Facts]:
    """Return what the rules of the version decide on each sentence, by content; {} without a version."""
    if scope.plan is None or not sentences:
        return {}
    values = ", ".join(f"({quoted(row['content'])}, {quoted(row['text'])})" for row in sentences)
    lake.execute(
        "CREATE OR REPLACE TEMP TABLE read_sentences AS SELECT DISTINCT *, NULL::VARCHAR AS shard FROM "
        f"(VALUES {values}) t(content, text)"
    )
    rows = lake.rows(sentence_rows(scope.plan, Stage.CAPTION, scope.upto, "read_sentences"))
    return {row["content"]: {"dropped_by": row["dropped_by"], "value": row["dropped_value"]} for row in rows}
