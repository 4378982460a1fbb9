"""Rewrite the generated part of a document: the lines between two marks."""

from __future__ import annotations

import sys
from pathlib import Path


def rewrite(document: Path, start: str, end: str, made: str, arguments: list[str]) -> int:
    """Put ``made`` between the lines ``start`` and ``end``; with ``--check``, write nothing.

    Returns:
        The exit status: 1 if ``--check`` finds a difference, else 0.
    """
    text = document.read_text(encoding="utf-8")
    before, rest = text.split(start)
    wanted = f"{before}{start}\n{made}\n{end}{rest.split(end)[1]}"
    if arguments == ["--check"]:
        if wanted != text:
            print(f"{document.name} is not up to date; run: python {sys.argv[0]}", file=sys.stderr)
        return int(wanted != text)
    document.write_text(wanted, encoding="utf-8")
    return 0
