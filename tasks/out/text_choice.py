"""Choose the texts of samples: a column, one of several by chance, the same on every machine, or each of several."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.terms.error import PairmillError

COLUMNS = ("text1", "text2", "text3", "syn_text", "caption", "alt_text")
_SEVERAL = re.compile(r"(random|each)\((.*)\)", re.DOTALL)
_ITEM = re.compile(r"(\w+)(?:\.\.(\w+))?(?:\s*\*\s*(\d+(?:\.\d+)?))?")
_REMEDY = (
    f"Columns are {', '.join(COLUMNS)}; write one, or such as: random(text1..text3, syn_text * 2), or "
    "each(text1, caption)."
)


@dataclass(frozen=True)
class TextChoice:
    """Columns of a pair with their weights; ``spec`` is as the user wrote it.

    A pair's text is drawn among the columns in which it has one, with chances in proportion to the weights. The draw is
    a hash of the image's id, so an export is the same whatever machine writes it, and however often it is resumed.

    With ``each`` a pair is several rows, one for each column in which it has a text; `text_column` names the column.
    """

    spec: str
    weights: tuple[tuple[str, float], ...]
    each: bool = False

    @property
    def each_of(self) -> tuple[str, ...]:
        """The columns for each of which a pair is repeated; none if it is not."""
        return tuple(name for name, _ in self.weights) if self.each else ()

    def text_of(self, row: Mapping[str, Any]) -> str:
        """Return the chosen text of a row, '' if it has none in these columns."""
        if self.each:
            return row[row["text_column"]]
        held = [(row[name], weight) for name, weight in self.weights if row.get(name)]
        if len(held) < 2:
            return held[0][0] if held else ""
        digest = hashlib.sha256(f"{self.spec}\x1f{row['image_id']}".encode()).digest()
        left = int.from_bytes(digest[:8], "big") / 2**64 * sum(weight for _, weight in held)
        for text, weight in held:
            left -= weight
            if left < 0:
                return text
        return held[-1][0]


def text_choice(spec: str) -> TextChoice:
    """Parse ``text1``, ``random(text1..text3, syn_text * 2)`` or ``each(text1..text3)``.

    A column of `random` has the weight 1 unless given. A range gives its weight to each: ``text1..text3 * 2`` is 2 for
    each of the three. ``each`` has no weights.

    Raises:
        PairmillError: The words are neither, a column is unknown or stands twice, or no weight is above 0.
    """
    several = _SEVERAL.fullmatch(spec.strip())
    if not several:
        return TextChoice(spec.strip(), ((_column(spec.strip(), spec), 1.0),))
    weights: dict[str, float] = {}
    for part in several[2].split(","):
        item = _ITEM.fullmatch(part.strip())
        if not item:
            raise PairmillError(f"--text {spec}: '{part.strip()}' is no column with a weight. {_REMEDY}")
        first, last, weight = item.groups()
        if weight and several[1] == "each":
            raise PairmillError(f"--text {spec}: each text is taken once, so '{part.strip()}' has no weight. {_REMEDY}")
        names = COLUMNS[COLUMNS.index(_column(first, spec)) : COLUMNS.index(_column(last or first, spec)) + 1]
        if not names or set(names) & set(weights):
            raise PairmillError(f"--text {spec}: '{part.strip()}' names a column twice or none. {_REMEDY}")
        weights |= dict.fromkeys(names, float(weight or 1))
    if not any(weights.values()):
        raise PairmillError(f"--text {spec}: no weight is above 0. {_REMEDY}")
    return TextChoice(spec.strip(), tuple(weights.items()), several[1] == "each")


def _column(name: str, spec: str) -> str:
    """Return a column's name. Raise PairmillError if there is no such column of texts."""
    if name not in COLUMNS:
        raise PairmillError(f"--text {spec}: there is no text '{name}'. {_REMEDY}")
    return name
