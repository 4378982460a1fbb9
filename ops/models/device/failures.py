"""Classify a device's error: no memory for a batch, or a context that is lost until a new process starts.

Torch, cuBLAS, cuDNN and ROCm each report full memory in their own words. Torch has a class for CUDA's other errors
since 2.9 (AcceleratorError), before that only a text.
"""

import re

# "NOT_INITIALIZED" of cuBLAS or cuDNN: its handle found no memory. CUDA's own text covers pinned memory and graphs.
_NO_ROOM = re.compile(
    r"out of memory|CU(BLAS|DNN|SOLVER|SPARSE)_STATUS_(ALLOC_FAILED|NOT_INITIALIZED)|cudaErrorMemoryAllocation"
)
# An error inside a captured region invalidates the capture. Torch then reports the capture, and the cause is behind it.
_CAPTURE = re.compile(r"during (stream )?capture|stream is capturing|capture was invalidated")
_BROKEN = re.compile(r"(CUDA|HIP) error|CUDNN_STATUS_(EXECUTION_FAILED|INTERNAL_ERROR|MAPPING_ERROR)")


def is_no_room(error: BaseException) -> bool:
    """Return whether the error means that device memory ran out: the device stays usable, a smaller batch may fit."""
    if type(error).__name__ == "OutOfMemoryError" or _NO_ROOM.search(str(error)):
        return True
    behind = error.__cause__ or error.__context__
    return behind is not None and bool(_CAPTURE.search(str(error))) and is_no_room(behind)


def is_broken(error: BaseException) -> bool:
    """Return whether the error means that every further call on the device fails in this process."""
    if is_no_room(error) or _CAPTURE.search(str(error)):
        return False
    return type(error).__name__ == "AcceleratorError" or (
        isinstance(error, RuntimeError) and bool(_BROKEN.search(str(error)))
    )


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message, at most 200 characters; its type's name without a message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:200]
