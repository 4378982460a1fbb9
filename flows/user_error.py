"""Show errors that the user can fix as one line; errors of the program itself keep their traceback."""

import errno
import re
import resource
import sys

# Errors other than PairmillError that name their remedy. They are looked up in imported modules only: a module that is
# not imported has raised none, and these two import the readers of all formats and an HTTP client (0.5 CPU s).
REMEDIES = (("pairmill.ops.models.model_digest", "ModelError"), ("pairmill.ops.read.source", "SourceError"))

# How the loader of libraries, DuckDB, Arrow, torch, OpenBLAS and Python's threads say that memory does not suffice.
_NO_MEMORY = re.compile(
    "cannot allocate memory|can't allocate memory|failed to map segment|failed to allocate|unable to allocate|"
    "allocation failure|out of memory|bad_alloc|can't start new thread|mmap failed",
    re.IGNORECASE,
)


def user_message(error: BaseException) -> str | None:
    """Return one line for an error that the user can fix, without secrets and control codes.

    None for any other error, whose traceback the caller shows.
    """
    from pairmill.catalog.terms.controls import visible
    from pairmill.catalog.terms.error import PairmillError
    from pairmill.catalog.terms.secrets import hidden

    others = (getattr(sys.modules[module], name) for module, name in REMEDIES if module in sys.modules)
    if isinstance(error, (PairmillError, *others)):
        return visible(hidden(str(error)))
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"the disk is full ({error}). Free some space and run again: what is finished is committed."
    if (cause := _lack_of_memory(error)) is not None:
        most, said = resource.getrlimit(resource.RLIMIT_AS)[0], " ".join(str(cause).split())
        limit = "" if most == resource.RLIM_INFINITY else f" beyond {most / 1e6:,.0f} MB (ulimit -v)"
        return visible(
            f"memory does not suffice. Free some, raise this process's limit{limit}, or use a larger machine, and run "
            f"again: what is finished is committed. ({said[:300] or type(cause).__name__})"
        )
    return None


def _lack_of_memory(error: BaseException | None) -> BaseException | None:
    """Return the error among ``error`` and its causes that says that memory does not suffice, None if none does."""
    seen: list[BaseException] = []
    while error is not None and error not in seen:
        is_of_system = isinstance(error, OSError) and error.errno == errno.ENOMEM
        if isinstance(error, MemoryError) or is_of_system or _NO_MEMORY.search(str(error)):
            return error
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None
