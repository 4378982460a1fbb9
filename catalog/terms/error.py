"""Define errors that a user can fix, with the remedy in their message."""

from collections.abc import Iterable


class PairmillError(Exception):
    """A condition that the user can fix; the message says how."""


class LeaseHeld(PairmillError):
    """Another process holds the lake's lease."""


class NewerLake(PairmillError):
    """The lake's schema or format is newer than this program supports."""


class NotWritable(PairmillError):
    """The lake's catalog or folder cannot be opened or written by this user."""


class Damaged(PairmillError):
    """A file of the lake is missing, or its bytes differ from what was written."""


class BadRecipe(PairmillError):
    """A recipe, or an override of a recipe, is not valid."""


class BadPredicate(BadRecipe):
    """A rule's predicate is not one boolean expression over score columns."""


class BadQuery(PairmillError):
    """DuckDB refused the SQL: a syntax error, an unknown table or column."""


class LeavesLake(BadQuery):
    """SQL would read or write outside of the lake. ``reason`` is the message without its remedy."""

    def __init__(self, reason: str) -> None:
        self.reason = f"{reason}."
        super().__init__(f"{reason}. --allow-files lets a statement read and write any file that you may.")


class LeaseLost(PairmillError):
    """This process did not renew its lease in time, and another process took the lease over."""


class NotApproved(PairmillError):
    """A person was asked whether a run may continue and refused; finished work is committed."""


class NoPairs(PairmillError):
    """A cut keeps no picture, so there is nothing to publish; computed scores are committed."""


class BudgetSpent(PairmillError):
    """A run reached a limit of its time, rows, bytes or money; finished work is committed."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return "did you mean 'x'?" for the name in ``known`` that is nearest to ``name``, '' if none is near."""
    from difflib import get_close_matches  # 3 ms, which only a mistake needs

    near = get_close_matches(name, known, n=1)
    return f"did you mean '{near[0]}'?" if near else ""


def stop_behind(error: BaseException) -> BaseException:
    """Return the KeyboardInterrupt or signal handler's exception that caused ``error``, else ``error`` itself.

    DuckDB turns whatever a signal handler raises during a query into "RuntimeError: Query interrupted".
    """
    cause = error.__cause__
    return error if cause is None or isinstance(cause, Exception) else cause
