"""Map statements of licences to SPDX identifiers, and choose the licence and the credit of one picture."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import yaml

VERSION = 1
CONFLICTING = "conflicting"
MOST_LETTERS = 300


@cache
def _table() -> dict[str, Any]:
    """Load licences.yaml with its patterns compiled."""
    table = yaml.safe_load((Path(__file__).parent / "licences.yaml").read_text("utf-8"))
    named = {each.lower(): each for each in table["identifiers"].split()}
    compiled = {key: [(re.compile(a), b) for a, b in rows] for key, rows in
                (("words", table["words"].items()), ("patterns", table["patterns"]))}  # fmt: skip
    return compiled | {"identifiers": named}


@cache
def spdx(statement: str) -> str:
    """Return the SPDX identifier that an address or phrase means, '' if it means none for certain.

    "CC BY" without a version means none.
    """
    table, text = _table(), statement.lower()[:MOST_LETTERS]
    for word, code in table["words"]:
        text = word.sub(code, text)
    text = re.sub(r"[\s_-]+", "-", text).strip("-")
    if text in table["identifiers"]:
        return table["identifiers"][text]
    for pattern, form in table["patterns"]:
        if found := pattern.search(text):
            return table["identifiers"].get(form.format(*(each or "" for each in found.groups())).lower(), "")
    return ""


def choose_rights(claims: Mapping[str, str | None], documents: Sequence[Mapping[str, str | None]]) -> dict[str, Any]:
    """Return licence, its address and the credit of a picture; None for what nothing says.

    ``claims`` are those of `FileClaims`; ``documents`` hold the picture and have ``licence``, ``licence_url``,
    ``attribution`` and ``author`` (of the document). The file's own licence counts most, then the documents' if all
    that state one agree, else it is CONFLICTING; last the file's copyright notice. A statement that is no SPDX
    identifier stands as it is.
    """
    stated = [(each["licence"] or each["licence_url"] or "", each["licence_url"] or "") for each in documents]
    own = [(each, "") for each in (claims["file_licence"] or "", claims["exif_rights"] or "")]
    candidates = [own[0]] if own[0][0] else [each for each in stated if each[0]] or [each for each in own if each[0]]
    names = {spdx(url) or spdx(text) or text[:MOST_LETTERS]: url or text for text, url in candidates}
    licence = CONFLICTING if len(names) > 1 else next(iter(names), None)
    address = names.get(licence or "", "")
    if not address.startswith(("https://", "http://")):
        address = f"https://spdx.org/licenses/{licence}.html" if licence and spdx(licence) else ""
    first = sorted(documents, key=lambda each: not (each["licence"] or each["licence_url"]))
    credited = [*(each["attribution"] for each in first), claims["file_creator"], *(each["author"] for each in first)]
    return {"licence": licence, "licence_url": address or None, "attribution": next(filter(None, credited), None)}
