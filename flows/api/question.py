"""Declare a question about a lake once, on its method; its command, its tool for agents and its JSON follow from it."""

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass
from decimal import Decimal
from typing import Any, TypeVar, get_args, get_type_hints

Method = TypeVar("Method", bound=Callable[..., Any])


@dataclass(frozen=True)
class Rows:
    """A table as an answer: names of columns, and an iterable of tuples, which may be larger than memory."""

    columns: list[str]
    rows: Iterable[tuple]


@dataclass(frozen=True)
class Question:
    """A method that answers one question about a lake, with the facts that its docstring and signature lack."""

    ask: Callable[..., Any]
    command: str  # name of its command, '' if it has none
    example: str  # a command line that asks it
    is_tool: bool  # whether agents may ask it: it loads no model and writes no file
    not_for_agents: Sequence[str]  # names of the arguments that agents may not set

    @property
    def about(self) -> str:
        """First line of the method's docstring."""
        return (self.ask.__doc__ or "").partition("\n")[0]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Parameters of the method, without ``self``."""
        return list(inspect.signature(self.ask).parameters.values())[1:]

    @property
    def is_list(self) -> bool:
        """Whether the answer is a table or a list, which can also be printed as CSV."""
        kind = self.ask.__annotations__["return"]
        return kind is Rows or str(kind).startswith("list[")

    def help_of(self, argument: str) -> str:
        """Return an argument's description from the docstring's section Args, '' if it has none."""
        said = inspect.cleandoc(self.ask.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        found = re.search(rf"^ +{argument}: (.+?)(?=\n    \w|\Z)", said, re.MULTILINE | re.DOTALL)
        return " ".join(found[1].split()) if found else ""


def question(
    command: str = "", example: str = "", tool: bool = True, not_for_agents: Sequence[str] = ()
) -> Callable[[Method], Method]:
    """Return a decorator that marks a method as a `Question`, with these attributes."""

    def mark(method: Method) -> Method:
        found = Question(method, command, example, tool, not_for_agents)
        setattr(method, "question", found)  # noqa: B010 (a function has no such attribute for a type checker)
        return method

    return mark


def questions_of(asked: type) -> Iterator[Question]:
    """Yield the questions among a class's methods, in the order of definition."""
    return (each.question for each in vars(asked).values() if hasattr(each, "question"))


def answer_type(of: Question) -> Any:
    """Return the type of a question's answer. Imports the modules of all answer types, 1 s."""
    from pairmill.flows.api import answer_types

    return get_type_hints(of.ask, {"answers": answer_types, "Rows": Rows})["return"]


def answer_schema(of: Question) -> dict[str, Any]:
    """Return the JSON schema of a question's answer."""
    from pydantic import TypeAdapter

    rows = {"type": "array", "items": {"type": "object"}}
    return rows if (kind := answer_type(of)) is Rows else TypeAdapter(kind).json_schema()


def rows_of(of: Question, answer: Any) -> Rows:
    """Convert an answer that is a list of dataclasses to `Rows`, one column a field; return `Rows` unchanged."""
    if isinstance(answer, Rows):
        return answer
    columns = [each.name for each in fields(type(answer[0]) if answer else get_args(answer_type(of))[0])]
    return Rows(columns, (tuple(getattr(each, name) for name in columns) for each in answer))


def json_value(value: Any) -> Any:
    """Convert an answer for JSON: dataclasses to dicts, bytes to hex, NaN and infinity to None, other types to text."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: json_value(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(each) for each in value]
    if isinstance(value, dict):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, bytes | bytearray):
        return value.hex()
    if isinstance(value, float | Decimal):
        return float(value) if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
