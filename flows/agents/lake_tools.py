"""Answer an agent's questions about a lake within limits: each call opens the lake for reading, and returns JSON."""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

from pairmill.catalog.lake.lake import Lake
from pairmill.catalog.terms.error import PairmillError
from pairmill.flows.api.opened_lake import OpenLake, open_lake
from pairmill.flows.api.question import Question, Rows, json_value, questions_of

ROWS = 200  # of one answer; an agent's context holds some 100 kB
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
        """Return the answer: an object, or for a list its ``rows``, and whether there are ``more`` than ROWS.

        Raises PairmillError with a remedy.
        """
        with open_lake(self.place) as lake, _limited(lake.lake):
            found = of.ask(lake, **given)
            if isinstance(found, Rows):
                first = [_short(row) for row in islice(found.rows, ROWS + 1)]
                return {"columns": found.columns, "rows": first[:ROWS], "more": len(first) > ROWS}
            if of.is_list:
                return {"rows": _short(found), "more": len(found) > ROWS}
            return _short(found)

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


def _short(value: Any) -> Any:
    """Convert a value for JSON, with texts cut at CHARACTERS and lists at ROWS."""
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:ROWS]]
    found = value if isinstance(value, dict) else json_value(value)
    if isinstance(found, dict):
        return {str(key): _short(each) for key, each in found.items()}
    cut = isinstance(found, str) and len(found) > CHARACTERS
    return f"{found[:CHARACTERS]}… ({len(found):,} characters)" if cut else found
