"""Recognise errors that report a lack of main memory."""

import errno
import re
import resource

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
