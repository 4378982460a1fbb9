"""Write the tables of a dataset card from the lake: sources, licences, opt-outs, marks of files, rules, removals."""

from pathlib import Path

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.lake.yaml_text import parse_yaml
from pairmill.catalog.queries.export.selected_pairs import Selection
from pairmill.catalog.terms.text_columns import RIGHTS


def card_tables(lake: Lake, selected: Selection) -> str:
    """Return Markdown of the tables of data_card.yaml that have rows for the selected pairs, each with its heading."""
    statements = parse_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    versions, parts = " OR ".join(f"({each.where})" for each in selected.versions), []
    for title, sql in statements.items():
        if title == "Licences" and RIGHTS[0] not in selected.divisions:
            continue
        rows = lake.rows(sql.replace("{pairs}", selected.where).replace("{versions}", versions))
        if rows:
            cells = [[str("" if each is None else each).replace("|", "\\|") for each in row.values()] for row in rows]
            table = [[name.replace("_", " ") for name in rows[0]], ["---"] * len(rows[0]), *cells]
            parts.append(f"## {title}\n\n" + "\n".join(f"| {' '.join(' | '.join(row).split())} |" for row in table))
    return "\n\n".join(parts)
