"""Explain what an item refers to: images, sentences, documents, linked addresses, quarantined items."""

from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.explain.why import Facts, Resolved, Scope, superseded_at
from pairmill.catalog.queries.explain.why_image import decisions, explain_image
from pairmill.catalog.queries.explain.why_sentence import explain_sentence

NAMED = 20  # images, and sentences, that an item may mean; the first of them is explained


@dataclass(frozen=True)
class Explanation:
    """What a lake knows of the things that one item refers to; a list is empty if it refers to none.

    Attributes:
        dataset: The version whose rules and decisions are shown, as NAME@VERSION; '' without one.
        images: The first image by its parts (see `explain_image`).
        sentences: The first sentence by its parts (see `explain_sentence`).
        documents: Each document by its parts: its row as ``origin``; ``superseded``, the commit since which it is
            replaced, else None; ``images`` in page order with the dataset's decision (``dropped_by`` is None without
            one); the number of ``sentences``.
        addresses: The first linked address, and whether and how it was fetched.
        quarantine: Rows of quarantined items.
        other_images: Further images of that name: ``image_id``, and the newest decision.
        other_sentences: Ids of further sentences.
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


def explain(lake: Lake, found: Resolved, scope: Scope) -> Explanation:
    """Explain the first image and sentence that ``found`` names, and all its documents."""
    return Explanation(
        str(scope.dataset or ""),
        [explain_image(lake, each, scope) for each in found.images[:1]],
        [explain_sentence(lake, each, scope) for each in found.sentences[:1]],
        [_document(lake, each, scope) for each in found.documents],
        found.addresses[:1],
        found.quarantine,
        [{"image_id": each, **next(reversed(decisions(lake, each)), {})} for each in found.images[1:NAMED]],
        found.sentences[1:NAMED],
    )


def _document(lake: Lake, origin: Facts, scope: Scope) -> Facts:
    """Return the parts of a document, whose row is ``origin``."""
    document_id = origin["document_id"]
    key = (scope.dataset.name, scope.dataset.version) if scope.dataset else ("", 0)
    images = """SELECT image_id, url, dropped_by, value FROM images i LEFT JOIN decisions d
        ON d.item_id = i.image_id AND d.dataset = ? AND d.version = ? WHERE i.document_id = ? ORDER BY position"""
    count = "SELECT count(*) FROM sentences WHERE document_id = ?"
    return {
        "origin": origin,
        "superseded": superseded_at(lake, document_id),
        "images": lake.rows(images, (*key, document_id)),
        "sentences": lake.query(count, (document_id,))[0][0],
    }
