"""Make the pages of tables, quarantine reasons and scorers from their declarations."""

import re
from pathlib import Path

import yaml

from infra.site.markdown import code, table
from pairmill.catalog.lake.schema import MIGRATIONS, NEWEST, released
from pairmill.catalog.lake.table_meanings import meaning, tables
from pairmill.catalog.terms.reasons import REASONS
from pairmill.catalog.terms.scores import OWN


def tables_page() -> str:
    """Return the page of all tables and their columns."""
    text = [
        f"# Tables and columns\n\nSchema version {NEWEST}. Ids are 32 hex digits, the first 128 bits of a sha256."
        ' Write `"commit"`, `"table"` and `"at"` in quotes: they are words of SQL. `pairmill sql` answers queries.\n'
    ]
    for name, columns in sorted(lake_tables().items()):
        rows = [(code(column), kind, meaning(name, column)) for column, kind in columns.items()]
        text.append(f"## {name}\n\n{tables()[name]}\n\n{table(['column', 'type', 'meaning'], rows)}\n")
    return "\n".join(text)


def lake_tables() -> dict[str, dict[str, str]]:
    """Return columns and types of every table and view of a lake with Pairmill's own scores."""
    made = {name for part in MIGRATIONS for name in re.findall(r"CREATE (?:OR REPLACE )?(?:TABLE|VIEW) (\w+)", part)}
    return {name: released()[name] for name in made} | {score.table: score.table_columns for score in OWN}


def reasons_page() -> str:
    """Return the page of quarantine reasons."""
    said = yaml.safe_load((Path(__file__).parent / "reasons.yaml").read_text("utf-8"))
    rows = [(code(name), said[name]["meaning"], said[name]["remedy"]) for name in REASONS]
    return (
        "# Quarantine reasons\n\nWhat cannot be used is a row of `quarantine` with one of these reasons and a detail. "
        "`pairmill quarantine` counts them, `pairmill run RECIPE --retry REASON` tries one reason again.\n\n"
        f"{table(['reason', 'meaning', 'remedy'], rows)}\n"
    )


def scorers_page() -> str:
    """Return the page of Pairmill's own scorers."""
    rows = [
        (code(score.name), score.of, score.stage.name, code(score.model), code(score.needs),
         code(score.op.partition(":")[2]),         ", ".join(code(column.name) for column in score.columns))
        for score in OWN
    ]  # fmt: skip
    head = ["scorer", "of", "stage", "model", "needs section", "op", "columns"]
    return (
        "# Scorers\n\nWhat computes each score. A rule applies from the stage that computes its columns on. A scorer's "
        "digest holds its version, its settings, the content of its model's files and the digests of the scorers that "
        "it reads from; a row of another digest is pending. [Every column with its meaning](scores.md) has a page "
        f"of its own.\n\n{table(head, rows)}\n"
    )
