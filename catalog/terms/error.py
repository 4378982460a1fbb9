"""Define errors that a user can fix, with the remedy in their message; recognise errors for lack of memory."""

import errno
import re
import resource
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


# How the loader of libraries, DuckDB, Arrow, torch, OpenBLAS and Python's threads say that memory does not suffice.
_NO_MEMORY = re.compile(
    "cannot allocate memory|can't allocate memory|failed to map segment|failed to allocate|unable to allocate|"
    "allocation failure|out of memory|bad_alloc|can't start new thread|mmap failed",
    re.IGNORECASE,
)
_OF_DEVICE = re.compile(r"\b(CUDA|HIP|MPS|XPU)\b")  # a GPU lacks memory of its own


def lack_of_memory(error: BaseException | None) -> BaseException | None:
    """Return the first of ``error`` and its causes that reports a lack of main memory; None if none does.

    A lack of GPU memory does not count. Where the address space is limited, a name that cannot be imported counts: an
    import for which memory lacked leaves half a module behind, and the next one, for the next row, misses its names.
    """
    is_limited = resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        is_of_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
        is_said = _NO_MEMORY.search(str(error)) and not _OF_DEVICE.search(str(error))
        is_half = is_limited and isinstance(error, ImportError) and "cannot import name" in str(error)
        if isinstance(error, MemoryError) or is_of_system or is_said or is_half:
            return error
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None
