"""Make the tables of a dataset card from the lake: sources, licences, opt-outs, safety, rules, removals."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.yaml_text import parse_yaml
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.terms.scores import OWN, named_in

# A mean would hide the few pictures that matter, so the highest values are named.
_SCORES = """SELECT '{0}' AS score, count(*) AS pictures, round(median(value), 3) AS median,
    round(quantile_cont(value, 0.95), 3) AS "95 % are below", round(max(value), 3) AS highest
    FROM (SELECT arg_max("{0}", "commit") AS value FROM {1} WHERE sha256 IN (SELECT sha256 FROM pairs WHERE {2})
    GROUP BY sha256) HAVING count(*) > 0"""

_SAFETY = ("nsfw", "faces")


@dataclass(frozen=True)
class CardTable:
    """A table of a dataset card: title, a sentence about it, its field of Croissant RAI ('' for none), and its rows."""

    title: str
    about: str
    rai: str
    rows: list[dict[str, Any]]

    def markdown(self) -> str:
        """Return the table as Markdown with its heading; underscores of column names become spaces."""
        cells = [[str("" if each is None else each).replace("|", "\\|") for each in row.values()] for row in self.rows]
        table = [[name.replace("_", " ") for name in self.rows[0]], ["---"] * len(self.rows[0]), *cells]
        lines = "\n".join(f"| {' '.join(' | '.join(row).split())} |" for row in table)
        return f"## {self.title}\n\n{self.about}\n\n{lines}"

    def lines(self) -> list[str]:
        """Return a line for each row: the title, and each column with its value."""
        rows = (", ".join(f"{name.replace('_', ' ')}: {each}" for name, each in row.items()) for row in self.rows)
        return [f"{self.title}: {row}" for row in rows]


def card_tables(lake: Lake, selected: Selection) -> list[CardTable]:
    """Build the card's tables for the selected pairs, by data_card.yaml and of safety scores; leave out empty ones."""
    declared = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    versions, found = " OR ".join(f"({each.where})" for each in selected.versions), []
    for title, of in declared.items():
        known = {*re.findall(r"FROM ([a-z_]+)", of["sql"])} <= lake.tables  # a reader's lake of an older Pairmill
        if known and of.get("column", "sha256") in ("sha256", *selected.optional_columns):
            rows = lake.rows(of["sql"].replace("{pairs}", selected.where).replace("{versions}", versions))
            found.append(CardTable(title, of["about"], of.get("rai", ""), rows))
    safety = (each for each in OWN if each.name in _SAFETY and each.table in lake.tables)
    columns = [(column.name, each.table) for each in (*safety, *named_in(lake.tables)) for column in each.columns]
    rows = [row for names in columns for row in lake.rows(_SCORES.format(*names, selected.where))]
    about = "Numbers of models and imported numbers, each on its own scale."
    found.append(CardTable("Scores of pictures", about, "personalSensitiveInformation", rows))
    return [each for each in found if each.rows]
