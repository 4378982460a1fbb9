"""Answer an agent's questions about a lake within limits: each call opens the lake for reading, and returns JSON."""

import inspect
import json
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.api.question import Question, Rows, json_value, questions_of

ROWS = 200  # of one answer
ANSWER = 100_000  # characters of the JSON of one answer's rows: what an agent's context holds
CHARACTERS = 2_000  # of one text
SECONDS = 60.0  # of one statement


@dataclass(frozen=True)
class LakeTools:
    """The questions of `OpenLake` about the lake at ``place`` for agents. SQL reads the lake's own files alone."""

    place: str

    def tools(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """Return a function for each question by its name, with the question's arguments and docstring."""
        asked = [each for each in questions_of(OpenLake) if each.is_tool]
        return {each.command or each.ask.__name__: self._tool(each) for each in asked}

    def ask(self, of: Question, **given: Any) -> dict[str, Any]:
        """Return the answer: an object, or for a list its first ``rows``, and whether there are ``more``.

        A list has at most ROWS rows and ANSWER characters. Raises PairmillError with a remedy.
        """
        with open_lake(self.place) as lake, _limited(lake.lake):
            found = of.ask(lake, **given)
            if isinstance(found, Rows):
                return {"columns": found.columns, **_first(found.rows)}
            return _first(found) if of.is_list else _short(found)

    def _tool(self, of: Question) -> Callable[..., dict[str, Any]]:
        def tool(**given: Any) -> dict[str, Any]:
            return self.ask(of, **given)

        arguments = [each for each in of.parameters if each.name not in of.not_for_agents]
        tool.__name__, tool.__doc__ = of.command or of.ask.__name__, of.ask.__doc__
        tool.__annotations__ = {each.name: each.annotation for each in arguments} | {"return": dict[str, Any]}
        tool.__signature__ = inspect.Signature(arguments, return_annotation=dict[str, Any])  # pyright: ignore[reportFunctionMemberAccess]
        return tool


@contextmanager
def _limited(lake: Lake) -> Iterator[None]:
    """Interrupt the body's statement after SECONDS, and raise PairmillError then."""
    is_late = threading.Event()

    def interrupt() -> None:
        is_late.set()
        lake.connection.interrupt()

    timer = threading.Timer(SECONDS, interrupt)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if is_late.is_set():
            raise PairmillError(f"stopped after {SECONDS:g} s; ask for less, by a WHERE or a sample.") from error
        raise
    finally:
        timer.cancel()


def _first(rows: Iterable[Any]) -> dict[str, Any]:
    """Return the first rows that fit into ROWS and ANSWER, at least one of them, and whether there are more."""
    taken: list[Any] = []
    size = 0
    for row in map(_short, rows):
        size += len(json.dumps(row, ensure_ascii=False, default=str))
        if len(taken) == ROWS or (taken and size > ANSWER):
            return {"rows": taken, "more": True}
        taken.append(row)
    return {"rows": taken, "more": False}


def _short(value: Any) -> Any:
    """Convert a value for JSON, with texts cut at CHARACTERS and lists at ROWS."""
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:ROWS]]
    found = value if isinstance(value, dict) else json_value(value)
    if isinstance(found, dict):
        return {str(key): _short(each) for key, each in found.items()}
    cut = isinstance(found, str) and len(found) > CHARACTERS
    return f"{found[:CHARACTERS]}… ({len(found):,} characters)" if cut else found
