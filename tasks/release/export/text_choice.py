"""Choose the texts of samples: a column, one of several by chance, the same on every machine, or each of several."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError

_SEVERAL = re.compile(r"(random|each)\((.*)\)", re.DOTALL)
_ITEM = re.compile(r"(\w+)(?:\.\.(\w+))?(?:\s*\*\s*(\d+(?:\.\d+)?))?")
_REMEDY = "Columns are {columns}; write one, or such as: random(text1..text3, syn_text * 2), or each(text1, caption)."


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


def text_choice(spec: str, n_texts: int = text_columns.RELEASED) -> TextChoice:
    """Parse ``text1``, ``random(text1..text3, syn_text * 2)`` or ``each(text1..text3)`` for a version.

    A column of `random` has the weight 1 unless given. A range gives its weight to each: ``text1..text3 * 2`` is 2 for
    each of the three. ``each`` has no weights.

    Args:
        spec: What the user wrote.
        n_texts: The version's number of columns of real texts.

    Raises:
        PairmillError: The words are neither, a column is unknown or stands twice, or no weight is above 0.
    """
    columns = text_columns.of_every_kind(n_texts)

    def refused(why: str) -> PairmillError:
        return PairmillError(f"--text {spec}: {why}. {_REMEDY.format(columns=', '.join(columns))}")

    def place(name: str) -> int:
        if name in columns:
            return columns.index(name)
        more = f" (a version has it by `association.top_k: {name[-1]}`)" if name in text_columns.texts() else ""
        raise refused(f"there is no text '{name}'{more}")

    several = _SEVERAL.fullmatch(spec.strip())
    if not several:
        return TextChoice(spec.strip(), ((columns[place(spec.strip())], 1.0),))
    weights: dict[str, float] = {}
    for part in several[2].split(","):
        item = _ITEM.fullmatch(part.strip())
        if not item:
            raise refused(f"'{part.strip()}' is no column with a weight")
        first, last, weight = item.groups()
        if weight and several[1] == "each":
            raise refused(f"each text is taken once, so '{part.strip()}' has no weight")
        names = columns[place(first) : place(last or first) + 1]
        if not names or set(names) & set(weights):
            raise refused(f"'{part.strip()}' names a column twice or none")
        weights |= dict.fromkeys(names, float(weight or 1))
    if not any(weights.values()):
        raise refused("no weight is above 0")
    return TextChoice(spec.strip(), tuple(weights.items()), several[1] == "each")
