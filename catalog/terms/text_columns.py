"""Declare the columns of a pair that hold its real sentences: `text1` to `text5`, each with its similarity.

A version has as many as its recipe's `association.top_k`, and at least RELEASED: RealSyn (arXiv 2502.12513) releases
three and tries one to five. The table `pairs` has all MOST; those beyond a version's own are NULL and part of no
digest, export or report of that version.
"""

import json
from collections.abc import Mapping
from typing import Any

RELEASED, MOST = 3, 5
_MEANINGS = ("the sentence nearest to the picture", "the second nearest", "the third nearest", "the fourth nearest",
             "the fifth nearest")  # fmt: skip


def count(top_k: int) -> int:
    """Return the number of text columns of a version whose pictures get at most ``top_k`` sentences, 3 to 5."""
    return max(RELEASED, top_k)


def count_in(recipe: str) -> int:
    """Return the number of text columns of a version, 3 to 5, from its recipe as JSON."""
    return count(json.loads(recipe).get("association", {}).get("top_k", RELEASED))


def texts(n: int = MOST) -> tuple[str, ...]:
    """Return the names of the first ``n`` text columns: ('text1', 'text2', ...)."""
    return tuple(f"text{place}" for place in range(1, n + 1))


def of_every_kind(n: int = MOST) -> tuple[str, ...]:
    """Return the names of all text columns of a pair with ``n`` real texts: these, fused text, caption and alt text."""
    return (*texts(n), "syn_text", "caption", "alt_text")


def similarities(n: int = MOST) -> tuple[str, ...]:
    """Return the names of the first ``n`` similarity columns, cosines -1 to 1: ('similarity1', 'similarity2', ...)."""
    return tuple(f"similarity{place}" for place in range(1, n + 1))


def real_texts(pair: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Return (column, text, similarity) of each real text that a row of ``pairs`` has."""
    named = zip(texts(), similarities(), strict=True)
    return [(name, pair[name], pair[similarity]) for name, similarity in named if pair.get(name)]


def of_version(n: int) -> str:
    """Return SQL for the columns of ``pairs`` that a version with ``n`` texts has, in the table's order.

    It also works on a lake that is not migrated yet, whose table has only the first RELEASED text columns.
    """
    beyond = ", ".join(f"'{name}'" for name in (*texts()[n:], *similarities()[n:]))
    return f"COLUMNS(name -> NOT list_contains([{beyond}]::VARCHAR[], name))"


def meanings() -> dict[str, str]:
    """Return name -> meaning of each text and similarity column, for the docs."""
    said = dict(zip(texts(), _MEANINGS, strict=True))
    return said | {
        similarity: f"cosine of the picture and {text}" for similarity, text in zip(similarities(), said, strict=True)
    }
