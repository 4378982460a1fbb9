"""Collect the lake's rows on one document: whether it is superseded, decisions on its images, its sentences."""

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.queries.explain.why import Facts, Scope, select_rows, superseded_at


def explain_document(lake: Lake, origin: Facts, scope: Scope) -> Facts:
    """Return ``origin`` (the document's row), ``superseded``, ``images`` and ``sentences``.

    ``superseded``: the commit since which the document is replaced, else None. ``images``: in page order, with the
    dataset's decision; ``dropped_by`` is None without a decision. ``sentences``: their number.
    """
    document_id = origin["document_id"]
    key = (scope.dataset.name, scope.dataset.version) if scope.dataset else ("", 0)
    images = """SELECT image_id, url, dropped_by, value FROM images i LEFT JOIN decisions d
        ON d.item_id = i.image_id AND d.dataset = ? AND d.version = ? WHERE i.document_id = ? ORDER BY position"""
    count = "SELECT count(*) FROM sentences WHERE document_id = ?"
    return {
        "origin": origin,
        "superseded": superseded_at(lake, document_id),
        "images": select_rows(lake, images, (*key, document_id)),
        "sentences": lake.query(count, (document_id,))[0][0],
    }
