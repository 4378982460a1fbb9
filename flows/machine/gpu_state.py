"""Check whether torch can use this machine's GPUs, by NVIDIA's driver and torch's version file, in milliseconds."""

import ctypes
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from pairmill.flows.machine.finding import Finding
from pairmill.tasks.run.place.resources import torch_build

NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver: its newest CUDA version ((0, 0) without a driver), its GPUs, and the reason if it has none."""

    cuda: tuple[int, int] = (0, 0)
    gpus: tuple[str, ...] = ()
    reason: str = ""


def ask_driver(library: str = "libcuda.so.1") -> Driver:
    """Query the driver's CUDA version, and the GPUs that this process may see."""
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


def gpus(_: object) -> Iterator[Finding]:
    """Yield a finding on whether torch, by the CUDA version of its build, can use the driver's GPUs."""
    build, visible = torch_build(), os.environ.get("CUDA_VISIBLE_DEVICES")
    cpus = len(os.sched_getaffinity(0))
    yield judge(ask_driver(), build.get("__version__", ""), build.get("cuda") or "", visible, cpus)


def judge(driver: Driver, torch: str, built_for: str, visible: str | None, cpus: int) -> Finding:
    """Return a finding on whether torch can use the GPUs.

    ``torch`` is its version, ``built_for`` the CUDA version that it was built for, '' for a build without CUDA.
    ``visible`` is CUDA_VISIBLE_DEVICES, None if it is not set; ``cpus`` are those that this process may use.
    """
    instead = f"models run on {cpus} CPUs"
    gpus = ", ".join(f"{n} × {name}" if n > 1 else name for name, n in Counter(driver.gpus).items())
    if not driver.gpus:
        hidden = driver.cuda != (0, 0) and visible is not None
        reason = f"{driver.reason or 'no GPU is visible'}; {instead}"
        if hidden:
            return Finding("warn", f"CUDA_VISIBLE_DEVICES='{visible}': {reason}", "unset CUDA_VISIBLE_DEVICES")
        if driver.reason.startswith("the NVIDIA driver fails"):
            return Finding("warn", reason, "reinstall the NVIDIA driver, or restart the machine after its update")
        return Finding("ok", reason)
    if not built_for:
        remedy = "install torch with CUDA: pip install --force-reinstall torch torchvision"
        return Finding("warn", f"{gpus}, but torch {torch} is built without CUDA: {instead}", remedy)
    if driver.cuda[0] < int(built_for.split(".")[0]):
        newest = ".".join(map(str, driver.cuda))
        trouble = f"{gpus}, but its driver knows CUDA {newest} and torch {torch} needs {built_for}: {instead}"
        return Finding("warn", trouble, "update the NVIDIA driver")
    return Finding("ok", f"{gpus}, CUDA {built_for} by torch {torch}")
