"""Ask NVIDIA's driver for its GPUs by its C library, in milliseconds; importing torch takes seconds."""

import ctypes
from dataclasses import dataclass

LIBRARY = "libcuda.so.1"
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True)
class Driver:
    """What the driver says: its newest CUDA version, (0, 0) without a driver, its GPUs, and why there are none."""

    cuda: tuple[int, int] = (0, 0)
    gpus: tuple[str, ...] = ()
    reason: str = ""


def ask_driver(library: str = LIBRARY) -> Driver:
    """Return the driver's version and the GPUs that this process may see."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return Driver(reason="no NVIDIA driver is installed")
    number = ctypes.c_int()
    cuda.cuDriverGetVersion(ctypes.byref(number))
    newest = (number.value // 1000, number.value % 1000 // 10)
    if error := cuda.cuInit(0):
        return Driver(newest, reason="no GPU is visible" if error == NO_DEVICE else _error_text(cuda, error))
    if error := cuda.cuDeviceGetCount(ctypes.byref(number)):
        return Driver(newest, reason=_error_text(cuda, error))
    return Driver(newest, tuple(_describe(cuda, index) for index in range(number.value)))


def _describe(cuda: ctypes.CDLL, index: int) -> str:
    """Return a GPU's name and memory."""
    device, name, memory = ctypes.c_int(), ctypes.create_string_buffer(128), ctypes.c_size_t()
    cuda.cuDeviceGet(ctypes.byref(device), index)
    cuda.cuDeviceGetName(name, len(name), device)
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return f"{name.value.decode(errors='replace')} ({memory.value / 2**30:.0f} GiB)"


def _error_text(cuda: ctypes.CDLL, error: int) -> str:
    """Return the driver's text for an error code."""
    text = ctypes.c_char_p()
    cuda.cuGetErrorString(error, ctypes.byref(text))
    return f"the NVIDIA driver fails: {(text.value or b'').decode(errors='replace') or error}"
