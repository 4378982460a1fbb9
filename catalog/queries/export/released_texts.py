"""Read the texts of a released dataset, and count those that a recipe's sentence rules would drop."""

from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import duckdb
import pyarrow as pa

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.recipe.plan import Check
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError

READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json"}
SEED = 0
EXAMPLES = 3


@dataclass(frozen=True)
class Conformance:
    """What one rule does to released texts.

    Attributes:
        rule: The rule's name.
        keep: Its predicate.
        dropped: Texts that the rule alone would drop; None if it reads a column that texts alone do not have.
        examples: Up to EXAMPLES of them, the shortest first.
    """

    rule: str
    keep: str
    dropped: int | None
    examples: tuple[str, ...] = ()


def released_texts(path: str, rows: int) -> list[str]:
    """Return the distinct real texts of at most ``rows`` rows of a file, drawn at random with a fixed seed.

    The file may be a pattern (``folder/*.parquet``). All texts are in memory: 100,000 rows take some 60 MB.

    Raises:
        PairmillError: The file cannot be read, or lacks the released columns.
    """
    reader = next((READERS[suffix] for suffix in READERS if path.endswith(suffix)), "")
    if not reader:
        raise PairmillError(f"'{path}' is no table of released texts; name a file that ends in {', '.join(READERS)}")
    table = f"{reader}({quoted(path)})"
    with duckdb.connect() as connection:
        try:
            held = {name for name, *_ in connection.execute(f"DESCRIBE FROM {table}").fetchall()}
            needed = text_columns.texts(text_columns.RELEASED)
            names = [name for name in text_columns.texts() if name in held or name in needed]
            columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in names)
            sql = (
                f"SELECT DISTINCT unnest([{columns}]) AS text FROM (SELECT {', '.join(names)} FROM {table} "
                f"USING SAMPLE reservoir({rows} ROWS) REPEATABLE ({SEED})) ORDER BY text"
            )
            return [text for (text,) in connection.execute(sql).fetchall() if text]
        except duckdb.IOException as error:
            raise PairmillError(f"'{path}' cannot be read ({str(error).splitlines()[0]}); check the path") from error
        except duckdb.Error as error:
            needed = f"it needs the columns {', '.join(text_columns.texts(text_columns.RELEASED))}"
            raise PairmillError(f"'{path}' holds no released texts ({str(error).splitlines()[0]}); {needed}") from error


class ScoredTexts:
    """A table in memory of texts with the columns that rules read; a context manager.

    A row takes some 200 bytes.
    """

    def __enter__(self) -> Self:
        self._connection = duckdb.connect()
        self._columns: set[str] = set()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def add(self, rows: pa.Table) -> None:
        """Add rows, which have the same columns each time; one of them is ``text``."""
        self._connection.register("chunk", rows)
        made = "INSERT INTO scored BY NAME FROM chunk" if self._columns else "CREATE TABLE scored AS FROM chunk"
        self._connection.execute(made)
        self._connection.unregister("chunk")
        self._columns = set(rows.column_names)

    def tested(self, checks: Sequence[Check]) -> list[Conformance]:
        """Return what each rule does to the texts: it drops those for which it is false or NULL."""
        return [self._tested(check) for check in checks]

    def _tested(self, check: Check) -> Conformance:
        """Count the texts that one rule drops, and take examples."""
        if not set(check.columns) <= self._columns:
            return Conformance(check.name, check.keep, None)
        of_dropped = f"FROM scored WHERE ({check.keep}) IS NOT TRUE"
        [(dropped,)] = self._connection.execute(f"SELECT count(*) {of_dropped}").fetchall()
        shortest = f"SELECT text {of_dropped} ORDER BY length(text), text LIMIT {EXAMPLES}"
        return Conformance(
            check.name, check.keep, dropped, tuple(text for (text,) in self._connection.execute(shortest).fetchall())
        )
