"""Test the rules of a recipe on texts that are known to have passed those rules: the texts that RealSyn released.

A text that a rule drops shows that our reading of the rule is stricter than the paper's. The texts are taken as they
are, one sentence each, because our splitter would cut some of them. Word shares for the entropy are those of the texts
themselves: `words.counts` imports those of another corpus.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.recipe.plan import Check, Plan
from pairmill.catalog.recipe.recipe import Recipe
from pairmill.catalog.terms.error import BadRecipe, PairmillError
from pairmill.ops.batch import Batch
from pairmill.ops.text.corpus_entropy import CorpusEntropy, count_words
from pairmill.ops.text.imported_words import CountsError, imported
from pairmill.tasks.run.identity import bound

TEXTS = ("text1", "text2", "text3")
READERS = {".parquet": "read_parquet", ".csv": "read_csv", ".jsonl": "read_json"}
SEED = 0
EXAMPLES = 3
AT_ONCE = 4096


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
    columns = ", ".join(f"CAST({name} AS VARCHAR)" for name in TEXTS)
    sql = (
        f"SELECT DISTINCT unnest([{columns}]) AS text FROM (SELECT {', '.join(TEXTS)} FROM {reader}({quoted(path)}) "
        f"USING SAMPLE reservoir({rows} ROWS) REPEATABLE ({SEED})) ORDER BY text"
    )
    with duckdb.connect() as connection:
        try:
            return [text for (text,) in connection.execute(sql).fetchall() if text]
        except duckdb.IOException as error:
            raise PairmillError(f"'{path}' cannot be read ({str(error).splitlines()[0]}); check the path") from error
        except duckdb.Error as error:
            needed = f"it needs the columns {', '.join(TEXTS)}"
            raise PairmillError(f"'{path}' holds no released texts ({str(error).splitlines()[0]}); {needed}") from error


def conform(plan: Plan, texts: Sequence[str], advance: Callable[[int], None]) -> list[Conformance]:
    """Return what each sentence rule of a plan does to ``texts``; ``advance`` is called with each number scored.

    Raises:
        ModelError: A model that a rule needs is missing.
        BadRecipe: A score's settings are not valid.
    """
    if not texts:
        raise PairmillError("there are no texts to test in this file")
    asked = {column for check in plan.sentence_checks for column in check.columns}
    ops = [each.op for each in bound(plan, "sentence") if asked & {column.name for column in each.score.columns}]
    ops.append(_entropy(plan.recipe, texts))
    with duckdb.connect() as connection:
        for at in range(0, len(texts), AT_ONCE):
            chunk = list(texts[at : at + AT_ONCE])
            _append(connection, _scored(chunk, ops, asked))
            advance(len(chunk))
        known = {name for name, *_ in connection.execute("DESCRIBE scored").fetchall()}
        return [_tested(connection, check, known) for check in plan.sentence_checks]


def _entropy(recipe: Recipe, texts: Sequence[str]) -> CorpusEntropy:
    """Return the op by the recipe's imported word counts, else by the words of the texts. Raises BadRecipe."""
    if recipe.words.counts:
        try:
            rows, folded = imported(recipe.words.counts)
        except CountsError as error:
            raise BadRecipe(f"recipe '{recipe.name}', words.counts: {error}") from error
        return CorpusEntropy(dict(zip(rows["word"].to_pylist(), rows["p"].to_pylist(), strict=True)), folded)
    counts = count_words(texts)
    total = sum(counts.values())
    return CorpusEntropy({word: n / total for word, n in counts.items()})


def _scored(texts: list[str], ops: Sequence[Callable[[Batch], Batch]], asked: set[str]) -> pa.Table:
    """Return the texts with the columns that rules read."""
    batch: Batch = {"text": texts}
    for op in ops:
        batch = op(batch)
    return pa.table({name: pa.array(values) for name, values in batch.items() if name in asked | {"text"}})


def _append(connection: duckdb.DuckDBPyConnection, rows: pa.Table) -> None:
    """Add rows to the table ``scored``, which the first rows create."""
    connection.register("chunk", rows)
    exists = connection.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'scored'").fetchall()
    connection.execute("INSERT INTO scored BY NAME FROM chunk" if exists else "CREATE TABLE scored AS FROM chunk")
    connection.unregister("chunk")


def _tested(connection: duckdb.DuckDBPyConnection, check: Check, known: set[str]) -> Conformance:
    """Count the texts that a rule drops: those for which it is false or NULL."""
    if not set(check.columns) <= known:
        return Conformance(check.name, check.keep, None)
    of_dropped = f"FROM scored WHERE ({check.keep}) IS NOT TRUE"
    dropped = connection.execute(f"SELECT count(*) {of_dropped}").fetchall()[0][0]
    shown = connection.execute(f"SELECT text {of_dropped} ORDER BY length(text), text LIMIT {EXAMPLES}").fetchall()
    return Conformance(check.name, check.keep, dropped, tuple(text for (text,) in shown))
