"""Declare the columns of a pair that hold its real sentences: `text1` to `text5`, each with its similarity.

A version has as many as its recipe's `association.top_k`, and at least RELEASED: RealSyn (arXiv 2502.12513) releases
three and tries one to five. The table `pairs` has all MOST; those beyond a version's own are NULL and part of no
digest, export or report of that version.
"""

import json
import re
from collections.abc import Collection, Mapping
from typing import Any

RELEASED, MOST = 3, 5
DIVISIONS = {"split": "splits", "size": "sizes"}  # column that a version may have, and the setting that fills it
RIGHTS = ("licence", "licence_url", "attribution")  # columns of a version whose recipe asks for the score `rights`
OPTIONAL = (*RIGHTS, *DIVISIONS)
_MEANINGS = ("the sentence nearest to the picture", "the second nearest", "the third nearest", "the fourth nearest",
             "the fifth nearest")  # fmt: skip


def count(top_k: int) -> int:
    """Return the number of text columns of a version whose pictures get at most ``top_k`` sentences, 3 to 5."""
    return max(RELEASED, top_k)


def optional_columns(recipe: str) -> tuple[str, ...]:
    """Return the columns of OPTIONAL that ``recipe`` (JSON) fills; RIGHTS only if a rule or `scores` needs them."""
    settings = json.loads(recipe)
    rules = " ".join(str(rule.get("keep")) for rule in settings.get("images", ()))
    has_rights = "rights" in settings.get("scores", ()) or re.search(rf"\b({'|'.join(RIGHTS)})\b", rules)
    return (*(RIGHTS if has_rights else ()), *(name for name, setting in DIVISIONS.items() if settings.get(setting)))


def beyond(n: int, optional: Collection[str]) -> list[str]:
    """Return the columns of ``pairs`` that a version lacks, if it has ``n`` texts and the ``optional`` columns."""
    return [*texts()[n:], *similarities()[n:], *(name for name in OPTIONAL if name not in optional)]


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


def of_version(n: int, optional: Collection[str] = ()) -> str:
    """Return SQL for the columns of ``pairs`` that a version has, in the table's order.

    ``n`` is its number of texts, ``optional`` are its columns among OPTIONAL. It also works on a lake that is not
    migrated yet, whose table has only the first RELEASED text columns and no OPTIONAL ones.
    """
    left_out = ", ".join(f"'{name}'" for name in beyond(n, optional))
    return f"COLUMNS(name -> NOT list_contains([{left_out}]::VARCHAR[], name))"


def meanings() -> dict[str, str]:
    """Return name -> meaning of each text and similarity column, for the docs."""
    said = dict(zip(texts(), _MEANINGS, strict=True))
    return said | {
        similarity: f"cosine of the picture and {text}" for similarity, text in zip(similarities(), said, strict=True)
    }
