"""Validate a rule's predicate: one scalar boolean SQL expression over score columns, and nothing else.

DuckDB's own parser parses the predicate. Nodes, operators, types and functions that are not on the lists below are
refused before anything is bound or run.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import duckdb

from pairmill.catalog.lake.literals import quoted
from pairmill.catalog.terms.error import BadPredicate, did_you_mean

LONGEST = 4000
EXCERPT = 60  # characters of a faulty expression that are shown on each side of the fault
REMEMBERED = 4096  # cache size; a run parses the same predicates 55 to 137 times, 2 ms each

_NODES = {"COLUMN_REF", "CONSTANT", "COMPARISON", "CONJUNCTION", "BETWEEN", "CASE", "CAST", "FUNCTION", "OPERATOR"}
_OPERATORS = {"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "COMPARE_IN", "COMPARE_NOT_IN",
              "OPERATOR_COALESCE", "OPERATOR_NULLIF", "ARRAY_EXTRACT"}  # fmt: skip
_TYPES = {"BOOLEAN", "INTEGER", "BIGINT", "HUGEINT", "UBIGINT", "SMALLINT", "TINYINT", "FLOAT", "DOUBLE", "DECIMAL",
          "VARCHAR", "NULL"}  # fmt: skip
_ARITHMETIC = {"+", "-", "*", "/", "//", "%", "**", "^", "abs", "sign", "least", "greatest", "round", "floor", "ceil",
               "ceiling", "trunc", "sqrt", "ln", "log", "log2", "log10", "exp", "pow", "power", "isnan", "isinf",
               "isfinite", "nullif"}  # fmt: skip
_TEXTS = {"||", "length", "len", "lower", "upper", "trim", "contains", "starts_with", "ends_with", "prefix", "suffix",
          "~~", "!~~", "~~*", "!~~*", "like_escape", "not_like_escape", "regexp_matches",
          "regexp_full_match"}  # fmt: skip
_LISTS = {"list_contains", "list_has", "list_has_any", "list_has_all", "list_position", "list_value"}
FUNCTIONS = _ARITHMETIC | _TEXTS | _LISTS
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL.*")
_REMEDY = "A predicate is one boolean expression over score columns, such as `least(width, height) >= 100`."


def columns_of(rule_name: str, sql: str) -> frozenset[str]:
    """Return the columns, in lower case, that a predicate reads. Raise BadPredicate if it is no scalar expression."""
    found = set()
    for node in tree_nodes(parse(rule_name, sql)):
        if "class" not in node:
            continue
        if node["class"] not in _NODES:
            raise _refusal(rule_name, f"it holds a {_node_name(node)}")
        _check_node(rule_name, node)
        if node["class"] == "COLUMN_REF":
            found.add(node["column_names"][0].lower())
    return frozenset(found)


def check(rule_name: str, sql: str, known: Mapping[str, str]) -> frozenset[str]:
    """Return the columns that a predicate reads, after type-checking it against ``known`` (column -> DuckDB type).

    Raises BadPredicate for an unknown column, and unless the predicate is one BOOLEAN.
    """
    columns = columns_of(rule_name, sql)
    if (kind := type_of(rule_name, sql, known)) != "BOOLEAN":
        raise BadPredicate(
            f"rule '{rule_name}': `{' '.join(sql.split())}` is {kind}, not true or false; compare it with something."
        )
    return columns


def check_number(rule_name: str, sql: str, known: Mapping[str, str]) -> None:
    """Raise BadPredicate unless the expression ``sql`` over the columns ``known`` (name -> DuckDB type) is a number."""
    kind = type_of(rule_name, sql, known)
    if not _NUMBER.fullmatch(kind):
        raise BadPredicate(
            f"rule '{rule_name}': it compares a {kind}, of which no share can be dropped; compare a number, such as "
            "`corpus_entropy >= {threshold}`."
        )


def type_of(rule_name: str, sql: str, known: Mapping[str, str]) -> str:
    """Return the SQL type of an expression over the columns ``known`` (name -> DuckDB type).

    Raises BadPredicate if it has no type, or reads another column.
    """
    columns = columns_of(rule_name, sql)
    for column in sorted(columns - known.keys()):
        remedy = did_you_mean(column, known) or f"known are: {', '.join(sorted(known))}."
        shown = " ".join(column.split())
        raise BadPredicate(f"rule '{rule_name}': no scorer computes '{shown}'; {remedy}")
    nothing = ", ".join(f'NULL::{known[column]} AS "{column}"' for column in sorted(columns)) or "1"
    try:
        return _type_of(sql, nothing)
    except duckdb.Error as error:
        raise BadPredicate(f"rule '{rule_name}': {_first_line(error)} In: {' '.join(sql.split())}") from error


def normal_form(rule_name: str, sql: str) -> str:
    """Return a predicate as DuckDB prints its parse tree: one line without comments, which may stand in parentheses.

    Raises BadPredicate if it is not one scalar expression.
    """
    columns_of(rule_name, sql)
    return _normal_form(sql)


@lru_cache(REMEMBERED)
def _normal_form(sql: str) -> str:
    """Return DuckDB's normal form of an expression. Cached."""
    statement = quoted(f"SELECT (\n{sql}\n)")
    with _sandbox().cursor() as connection:
        text = connection.execute(f"SELECT json_deserialize_sql(json_serialize_sql({statement}))").fetchall()[0][0]
    return text.removeprefix("SELECT ")


@lru_cache(REMEMBERED)
def _tree(sql: str) -> str:
    """Return DuckDB's parse tree of an expression as JSON. Raise duckdb.Error. Cached."""
    statement = quoted(f"SELECT (\n{sql}\n)")  # a literal: with a parameter DuckDB would import pandas, 0.3 s
    with _sandbox().cursor() as connection:
        return connection.execute(f"SELECT json_serialize_sql({statement})").fetchall()[0][0]


@lru_cache(REMEMBERED)
def _type_of(sql: str, nothing: str) -> str:
    """Return the type of an expression over the typed NULL columns ``nothing``. Raise duckdb.Error. Cached."""
    with _sandbox().cursor() as connection:
        return connection.execute(f"DESCRIBE SELECT (\n{sql}\n) FROM (SELECT {nothing})").fetchall()[0][1]


@cache
def _sandbox() -> duckdb.DuckDBPyConnection:
    """Return an in-memory DuckDB without file or network access, with one thread, shared by the process."""
    return duckdb.connect(config={"enable_external_access": False, "threads": 1, "lock_configuration": True})


def to_sql(node: dict[str, Any]) -> str:
    """Convert an expression node of a parse tree back to SQL text."""
    with _sandbox().cursor() as connection:
        frame = json.loads(connection.execute("SELECT json_serialize_sql('SELECT 1')").fetchall()[0][0])
        frame["statements"][0]["node"]["select_list"] = [node]
        tree = quoted(json.dumps(frame))
        text = connection.execute(f"SELECT json_deserialize_sql({tree}::JSON)").fetchall()[0][0]
    return text.removeprefix("SELECT ")


def constant(node: dict[str, Any]) -> float | None:
    """Return the value of an expression node without columns; None if it is not a number."""
    try:
        with _sandbox().cursor() as connection:
            return connection.execute(f"SELECT CAST(({to_sql(node)}) AS DOUBLE)").fetchall()[0][0]
    except duckdb.Error:
        return None


def parse(rule_name: str, sql: str) -> dict[str, Any]:
    """Parse one SQL expression into DuckDB's parse tree. Raise BadPredicate if the text is not one expression.

    The expression is parsed between line ends, so that a comment cannot hide the closing parenthesis.
    """
    if not sql.strip() or len(sql) > LONGEST or not sql.replace("\n", " ").replace("\t", " ").isprintable():
        raise _refusal(rule_name, f"it is empty, longer than {LONGEST} characters, or holds what cannot be printed")
    try:
        answer = json.loads(_tree(sql))
    except (duckdb.Error, RecursionError, UnicodeError) as error:
        raise _refusal(rule_name, f"it cannot be parsed: {_first_line(error)}") from error
    if answer["error"]:
        raise _refusal(rule_name, f"it cannot be parsed at ^: {_marked(sql, int(answer.get('position', 0)))}")
    statements = answer["statements"]
    if len(statements) != 1 or not _is_bare(statements[0]["node"]):
        raise _refusal(rule_name, "it is more than one expression")
    return statements[0]["node"]["select_list"][0]


def _is_bare(node: dict[str, Any]) -> bool:
    """Return whether ``node`` is a SELECT of one expression from nothing: no clause, alias, CTE or set operation."""
    rest = {key: value for key, value in node.items() if key not in ("select_list", "from_table")}
    bare = {"type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "where_clause": None,
            "group_expressions": [], "group_sets": [], "aggregate_handling": "STANDARD_HANDLING", "having": None,
            "sample": None, "qualify": None}  # fmt: skip
    return rest == bare and len(node["select_list"]) == 1 and node["from_table"]["type"] == "EMPTY"


def tree_nodes(root: Any) -> Iterator[dict[str, Any]]:
    """Yield all objects of a parse tree, without recursion, because hostile SQL may be nested deeply."""
    waiting = [root]
    while waiting:
        if isinstance(value := waiting.pop(), dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _check_node(rule_name: str, node: dict[str, Any]) -> None:
    """Raise BadPredicate if a node is a function, operator, column, cast or constant that predicates may not use."""
    if (kind := node["class"]) == "FUNCTION":
        aggregate = node["filter"] is not None or node["distinct"] or node["order_bys"]["orders"]
        elsewhere = node["schema"] not in ("", "main") or node["catalog"]
        if node["function_name"].lower() not in FUNCTIONS or aggregate or elsewhere:
            raise _refusal(rule_name, f"it calls {node['function_name']}()")
    elif kind == "OPERATOR" and node["type"] not in _OPERATORS:
        raise _refusal(rule_name, f"it holds a {_node_name(node)}")
    elif kind == "COLUMN_REF" and len(node["column_names"]) != 1:
        raise _refusal(rule_name, f"name the column '{node['column_names'][-1]}' without its table")
    elif kind == "CAST" and node["cast_type"]["id"] not in _TYPES:
        raise _refusal(rule_name, f"it casts to {node['cast_type']['id']}")
    elif kind == "CONSTANT" and node["value"].get("value") in (math.inf, -math.inf):  # e.g. 1e400
        raise _refusal(rule_name, "it holds a number that is too large")
    elif kind == "CONSTANT" and node["value"]["type"]["id"] not in _TYPES:
        raise _refusal(rule_name, f"it holds a value of type {node['value']['type']['id']}")


def _node_name(node: dict[str, Any]) -> str:
    """Return the name of a node's type for messages: 'operator cast' for OPERATOR_CAST."""
    return node["type"].lower().replace("_", " ")


def _refusal(rule_name: str, why: str) -> BadPredicate:
    return BadPredicate(f"rule '{rule_name}': {' '.join(why.split())}. {_REMEDY}")


def _marked(sql: str, position: int) -> str:
    """Return an excerpt of a rule with ^ where the parser failed: at byte ``position`` of the statement of `_tree`."""
    at = max(0, position - len("SELECT (\n"))
    before, after = sql.encode()[:at].decode(errors="ignore"), sql.encode()[at:].decode(errors="ignore")
    return f"{before[-EXCERPT:]} ^ {after[:EXCERPT]}"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0]
