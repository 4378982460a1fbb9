"""Fuzz recipe rules: each is refused in one line, or is one boolean expression that equals its normal form.

Long run, from the repository's root: ``python -m tests.fuzz.rules --times 10000 --seed 1``.
"""

import argparse
import random
from collections import Counter

import duckdb

from pairmill.catalog.recipe import predicate
from pairmill.catalog.recipe.thresholds import refuse_empty
from pairmill.catalog.terms.error import BadPredicate

COLUMNS = {"width": "INTEGER", "sharpness": "DOUBLE", "format": "VARCHAR", "animated": "BOOLEAN", "tags": "VARCHAR[]",
           "n_bytes": "BIGINT"}  # fmt: skip
ROWS = """(0, 0, '', true, [], 0), (640, 3.5, 'jpeg', false, ['a', 'b'], 12345),
    (-5, 'nan', NULL, NULL, NULL, 9223372036854775807), (2147483647, 'inf', '5', true, [NULL], -1)"""
VALUES = ["0", "-1", "3.5", "1e308", "1e400", "9" * 20, "0x10", "NULL", "'x'", "true", "INTERVAL 1 DAY", "[1, 2]",
          "{'a': 1}", "?", "$1", "E'\\n'", "''::BLOB"]  # fmt: skip
CALLED = [*sorted(predicate.FUNCTIONS), "random", "read_text", "getenv", "current_setting", "sum", "query", "error",
          "nextval", "list_transform", "array_agg", "repeat", "range", "unnest", "row_number"]  # fmt: skip
BETWEEN = ["+", "-", "*", "/", "//", "%", "**", "||", "<", ">", "<=", "=", "<>", "and", "or", "in", "like", "->", "&",
           "is distinct from", "similar to", "glob", "collate", "; ", ") FROM (SELECT ", " AS b, "]  # fmt: skip
FORMS = ["not {0}", "({0})", "-{0}", "{0} is null", "case when {0} then {1} else {2} end", "coalesce({0}, {1})",
         "{0} between {1} and {2}", "{0} in ({1}, {2})", "cast({0} as double)", "try_cast({0} as integer)", "tags[{0}]",
         "(select {0})", "exists(from images)", "{0} -- c", "/* {0} */ {1}", "lambda x: {0}", "count(*) over ()", "*",
         "images.{0}", '"{0}"', "{0}::INTEGER", "{0}::JSON"]  # fmt: skip
JUNK = "()'\"[]{};,-/*\\\n\t\0\u202e\ud800é$?:@#`"


def rule(chance: random.Random, depth: int) -> str:
    """Generate an expression of columns, values and calls, allowed and forbidden ones."""
    kind = chance.random() if depth else 0.0
    if kind < 0.25:
        return chance.choice([*COLUMNS] if chance.random() < 0.7 else VALUES)
    inner = [rule(chance, depth - 1) for _ in range(3)]
    if kind < 0.6:
        return f"{inner[0]} {chance.choice(BETWEEN)} {inner[1]}"
    if kind < 0.75:
        return f"{chance.choice(CALLED)}({', '.join(inner[: chance.randrange(4)])})"
    return chance.choice(FORMS).format(*inner)


def harmed(text: str, chance: random.Random) -> str:
    """In one of seven texts, replace up to two characters with one that opens or closes something."""
    at = chance.randrange(len(text))
    return text if chance.randrange(7) else text[:at] + chance.choice(JUNK) + text[at + chance.randrange(3) :]


def check(text: str, table: duckdb.DuckDBPyConnection) -> str:
    """Return 'refused' or 'taken'.

    Raises AssertionError if it is neither, or if the normal form has other values.
    """
    try:
        predicate.check("r", text, COLUMNS)
        refuse_empty("r", text)
        normal = predicate.normal_form("r", text)
    except BadPredicate as refused:
        assert "\n" not in str(refused), (text, str(refused))
        return "refused"
    assert predicate.normal_form("r", normal) == normal, text
    assert _values(f"(\n{text}\n)", table) == _values(normal, table), text
    return "taken"


def _values(sql: str, table: duckdb.DuckDBPyConnection) -> object:
    try:
        return table.execute(f"SELECT {sql} FROM t").fetchall()
    except duckdb.Error as error:  # the fault of a row (a text that is no number), not of the rule
        return type(error)


def run(times: int, seed: int) -> Counter[str]:
    """Try ``times`` rules; count the taken and the refused ones."""
    chance, found = random.Random(seed), Counter()
    with duckdb.connect(config={"enable_external_access": False}) as table:
        table.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in COLUMNS.items())})")
        table.execute(f"INSERT INTO t VALUES {ROWS}")
        for _ in range(times):
            found[check(harmed(rule(chance, chance.randint(1, 4)), chance), table)] += 1
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--times", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    print(dict(run(arguments.times, arguments.seed)))
