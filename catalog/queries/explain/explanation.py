"""Explain the objects that an item names: images, sentences, documents, linked addresses, quarantined items."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.pending.eligible import sentence_rows
from pairmill.catalog.queries.explain.why import Facts, Resolved, Scope, superseded_at
from pairmill.catalog.queries.explain.why_image import decisions, explain_image
from pairmill.catalog.queries.explain.why_sentence import explain_sentence
from pairmill.catalog.terms.score import Stage

NAMED = 20  # images, and sentences, that an item may mean; the first of them is explained
MOST = 400  # pictures, and sentences, of one document that are read
_UNDECIDED = {"dropped_by": None, "value": ""}


@dataclass(frozen=True)
class Explanation:
    """What a lake knows of the objects that one item (id, address, text) names; a list without such objects is empty.

    Attributes:
        dataset: The version whose rules and decisions are shown, as NAME@VERSION; '' without one.
        images: The first image by its parts (see `explain_image`).
        sentences: The first sentence by its parts (see `explain_sentence`).
        documents: Each document by its parts: ``origin``, its row; ``superseded``, the commit since which it is gone,
            else None; ``images`` in page order with the dataset's decision (``dropped_by`` is None if there is none);
            the number of ``sentences``.
        addresses: The first linked address, with the outcome of its fetch.
        quarantine: Rows of quarantined items.
        other_images: Further images that the item names: ``image_id``, and the newest decision.
        other_sentences: Content ids of further sentences that the item names.
    """

    dataset: str
    images: list[Facts]
    sentences: list[Facts]
    documents: list[Facts]
    addresses: list[Facts]
    quarantine: list[Facts]
    other_images: list[Facts]
    other_sentences: list[str]

    def __getitem__(self, part: str) -> Any:
        """Return a part, such as 'decision', of the image, else of the sentence, else of the first document."""
        return (self.images + self.sentences + self.documents)[0][part]


@dataclass(frozen=True)
class ItemPage:
    """An item by its parts, and its document in reading order (see `document_items`).

    The parts are those of `explain_image` or `explain_sentence`; a sentence's document is the first that has it.
    """

    facts: Facts
    document: Facts


def explain(lake: Lake, found: Resolved, scope: Scope) -> Explanation:
    """Explain the first image and the first sentence of ``found``, and all its documents."""
    others = found.images[1:NAMED]
    decided = decisions(lake, others) if others else {}
    return Explanation(
        str(scope.dataset or ""),
        [explain_image(lake, each, scope) for each in found.images[:1]],
        [explain_sentence(lake, each, scope) for each in found.sentences[:1]],
        [_document(lake, each, scope) for each in found.documents],
        found.addresses[:1],
        found.quarantine,
        [{"image_id": each, **next(reversed(decided[each]), {})} for each in others],
        found.sentences[1:NAMED],
    )


def _document(lake: Lake, origin: Facts, scope: Scope) -> Facts:
    """Return the parts of a document, whose row is ``origin``."""
    document_id = origin["document_id"]
    columns = ("image_id", "url", "dropped_by", "value")
    count = "SELECT count(*) FROM sentences WHERE document_id = ?"
    return {
        "origin": origin,
        "superseded": superseded_at(lake, document_id),
        "images": [{name: row[name] for name in columns} for row in _pictures(lake, document_id, scope)],
        "sentences": lake.query(count, (document_id,))[0][0],
    }


def item_page(lake: Lake, kind: str, key: str, scope: Scope) -> ItemPage | None:
    """Explain an image, or a distinct sentence, together with its document; None if the lake does not have it."""
    with lake.one_snapshot():
        column = "images WHERE image_id" if kind == "image" else "sentences WHERE content"
        if not lake.query(f"SELECT 1 FROM {column} = ? LIMIT 1", (key,)):
            return None
        facts = (explain_image if kind == "image" else explain_sentence)(lake, key, scope)
        origin = facts["origin"] if kind == "image" else facts["origin"]["occurrences"][0]
        return ItemPage(facts, document_items(lake, origin["document_id"], scope))


def document_items(lake: Lake, document_id: str, scope: Scope) -> Facts:
    """Return a document's ``pictures`` and ``sentences`` in reading order, at most MOST of each, with their decisions.

    ``dropped_by`` is None without a decision, '' for a kept item. For a sentence it is the rules' decision, which
    ignores duplicates. ``more`` is the number of items left out, absent if there are none.
    """
    of_document = f"SELECT DISTINCT position, content, text FROM sentences WHERE document_id = {quoted(document_id)}"
    sentences = lake.rows(f"{of_document} ORDER BY position, content")  # each position once
    pictures = _pictures(lake, document_id, scope)
    more = max(0, len(pictures) - MOST) + max(0, len(sentences) - MOST)
    fates = _fates(lake, sentences[:MOST], scope)
    shown: list[dict[str, Any]] = [{**row, **fates.get(row["content"], _UNDECIDED)} for row in sentences[:MOST]]
    return {"pictures": pictures[:MOST], "sentences": shown, "more": more}


def _pictures(lake: Lake, document_id: str, scope: Scope) -> list[Facts]:
    """Select the document's pictures, each position once."""
    name, version = (scope.dataset.name, scope.dataset.version) if scope.dataset else ("", 0)
    of_document = f"SELECT * FROM images WHERE document_id = {quoted(document_id)}"
    once = "QUALIFY row_number() OVER (PARTITION BY image_id ORDER BY commit DESC) = 1"
    decided = f"SELECT item_id, dropped_by, value FROM decisions WHERE dataset = {quoted(name)} AND version = {version}"
    return lake.rows(f"""SELECT i.image_id, i.sha256, i.position, i.url, i.alt_text, d.dropped_by, d.value FROM
        ({of_document} {once}) i LEFT JOIN ({decided}) d ON d.item_id = i.image_id ORDER BY i.position, i.image_id""")


def _fates(lake: Lake, sentences: list[Facts], scope: Scope) -> dict[str, Facts]:
    """Return content -> decision of the version's rules on each sentence; {} without a version."""
    if scope.plan is None or not sentences:
        return {}
    values = ", ".join(f"({quoted(row['content'])}, {quoted(row['text'])})" for row in sentences)
    lake.execute(f"""CREATE OR REPLACE TEMP TABLE read_sentences AS SELECT DISTINCT *, NULL::VARCHAR AS shard FROM
        (VALUES {values}) t(content, text)""")
    rows = lake.rows(sentence_rows(scope.plan, Stage.CAPTION, scope.upto, "read_sentences"))
    return {row["content"]: {"dropped_by": row["dropped_by"], "value": row["dropped_value"]} for row in rows}
