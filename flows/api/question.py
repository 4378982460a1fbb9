"""Declare a question about a lake once, on its method: its command, its agent's tool and its JSON follow from there."""

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
    """Rows of an answer that may be larger than memory: names of columns, and tuples."""

    columns: list[str]
    rows: Iterable[tuple]


@dataclass(frozen=True)
class Question:
    """A method that reads a lake and returns one answer; the rest is what its docstring and signature do not say.

    Attributes:
        ask: The method.
        command: Name of its command, '' for none of its own.
        example: A command line.
        is_tool: Whether agents may ask it: it loads no model and makes no file.
        not_for_agents: Arguments that agents do not get.
    """

    ask: Callable[..., Any]
    command: str
    example: str
    is_tool: bool
    not_for_agents: Sequence[str]

    @property
    def about(self) -> str:
        """First line of the docstring."""
        return (self.ask.__doc__ or "").partition("\n")[0]

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Its arguments."""
        return list(inspect.signature(self.ask).parameters.values())[1:]

    @property
    def is_list(self) -> bool:
        """Whether the answer is rows, which can be CSV too."""
        kind = self.ask.__annotations__["return"]
        return kind is Rows or str(kind).startswith("list[")

    def help_of(self, argument: str) -> str:
        """Return the argument's text in the docstring's section Args, '' without one."""
        said = inspect.cleandoc(self.ask.__doc__ or "").partition("\nArgs:\n")[2].partition("\n\n")[0]
        found = re.search(rf"^ +{argument}: (.+?)(?=\n    \w|\Z)", said, re.MULTILINE | re.DOTALL)
        return " ".join(found[1].split()) if found else ""


def question(
    command: str = "", example: str = "", tool: bool = True, not_for_agents: Sequence[str] = ()
) -> Callable[[Method], Method]:
    """Mark a method as a question; the arguments are those of `Question`."""

    def mark(method: Method) -> Method:
        found = Question(method, command, example, tool, not_for_agents)
        setattr(method, "question", found)  # noqa: B010 (a function has no such attribute for a type checker)
        return method

    return mark


def questions_of(asked: type) -> Iterator[Question]:
    """Yield the questions that are methods of a class, in their order."""
    return (each.question for each in vars(asked).values() if hasattr(each, "question"))


def answer_type(of: Question) -> Any:
    """Return the type of a question's answer. Imports the rooms that make the answers, 1 s."""
    from pairmill.flows.api import answer_types

    return get_type_hints(of.ask, {"answers": answer_types, "Rows": Rows})["return"]


def answer_schema(of: Question) -> dict[str, Any]:
    """Return the JSON schema of a question's answer."""
    from pydantic import TypeAdapter

    rows = {"type": "array", "items": {"type": "object"}}
    return rows if (kind := answer_type(of)) is Rows else TypeAdapter(kind).json_schema()


def rows_of(of: Question, answer: Any) -> Rows:
    """Return an answer of several dataclasses as rows."""
    if isinstance(answer, Rows):
        return answer
    columns = [each.name for each in fields(type(answer[0]) if answer else get_args(answer_type(of))[0])]
    return Rows(columns, (tuple(getattr(each, name) for name in columns) for each in answer))


def json_value(value: Any) -> Any:
    """Convert dataclasses to objects, bytes to hex digits, NaN and infinity to null, what JSON lacks to text."""
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
