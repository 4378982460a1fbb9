"""Test a recipe's sentence rules on texts that passed those rules: those that RealSyn released.

    python -m infra.bench.conform realsyn.parquet 30m

A text that a rule drops shows that our reading of the rule is stricter than the paper's. The texts are taken as they
are, one sentence each, because our splitter would cut some of them. Word shares for the entropy are those of the texts
themselves.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import duckdb
import pyarrow as pa

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.recipe.plan import Check, Plan, compile_plan
from pairmill.catalog.terms import text_columns
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.run.settings import load_recipe
from pairmill.ops.batch import Batch
from pairmill.ops.text.corpus_entropy import CorpusEntropy, count_words
from pairmill.tasks.run.place.identity import bound

AT_ONCE = 4096
SHOWN = 100  # characters of an example
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


def conform(plan: Plan, texts: Sequence[str]) -> list[Conformance]:
    """Return what each sentence rule of a plan does to ``texts``.

    Raises:
        PairmillError: There are no texts.
        ModelError: A model that a rule needs is missing.
    """
    if not texts:
        raise PairmillError("there are no texts to test in this file")
    asked = {column for check in plan.sentence_checks for column in check.columns}
    ops = [each.op for each in bound(plan, "sentence") if asked & {column.name for column in each.score.columns}]
    counts = count_words(texts)
    total = sum(counts.values())
    ops.append(CorpusEntropy({word: n / total for word, n in counts.items()}))
    scored = pa.concat_tables(
        _scored(list(texts[at : at + AT_ONCE]), ops, asked) for at in range(0, len(texts), AT_ONCE)
    )
    return [_tested(scored, check) for check in plan.sentence_checks]


def _scored(texts: list[str], ops: Sequence[Callable[[Batch], Batch]], asked: set[str]) -> pa.Table:
    """Return the texts with the columns that rules read."""
    batch: Batch = {"text": texts}
    for op in ops:
        batch = op(batch)
    return pa.table({name: pa.array(values) for name, values in batch.items() if name in asked | {"text"}})


def _tested(scored: pa.Table, check: Check) -> Conformance:
    """Count the texts that one rule drops, those for which it is false or NULL, and take examples."""
    if not set(check.columns) <= set(scored.column_names):
        return Conformance(check.name, check.keep, None)
    of_dropped = f"FROM scored WHERE ({check.keep}) IS NOT TRUE"
    with duckdb.connect() as connection:
        connection.register("scored", scored)
        [(dropped,)] = connection.execute(f"SELECT count(*) {of_dropped}").fetchall()
        shortest = connection.execute(f"SELECT text {of_dropped} ORDER BY length(text), text LIMIT {EXAMPLES}")
        return Conformance(check.name, check.keep, dropped, tuple(text for (text,) in shortest.fetchall()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print how many of the released texts each rule drops, with examples; return 1 if any rule drops one."""
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("file", help="a released table: .parquet, .csv or .jsonl, or a pattern of them")
    options.add_argument("recipe", nargs="?", default="30m")
    options.add_argument("--rows", type=int, default=100_000)
    options.add_argument("--models", choices=("recipe", "demo"), default="recipe")
    given = options.parse_args(arguments)
    plan = compile_plan(load_recipe(given.recipe, None, given.models))
    texts = released_texts(given.file, given.rows)
    found = conform(plan, texts)
    print(f"{len(texts):,} distinct texts of {given.file}, by the rules of {plan.recipe.name}")
    for each in found:
        count = "not tested" if each.dropped is None else f"{each.dropped:,} dropped, {each.dropped / len(texts):.2%}"
        print(f"{each.rule}: {count}; keeps {each.keep}")
        for text in each.examples:
            print(f"  {each.rule}: {text[:SHOWN]}")
    return int(any(each.dropped for each in found))


if __name__ == "__main__":
    sys.exit(main())
