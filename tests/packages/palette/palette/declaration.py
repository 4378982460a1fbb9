"""What Pairmill must know of the backend."""

from pairmill.catalog.terms.backend import Backend

PALETTE = Backend("palette:", captioner="palette.model:captioner", digest="palette.model:digest")
