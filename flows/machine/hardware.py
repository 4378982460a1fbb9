"""Check a machine: free memory, free disk where a run writes, and whether torch can use the GPUs, in milliseconds.

GPUs are asked of NVIDIA's driver and of torch's version file: to import torch takes 3 s.
"""

import ctypes
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil

from pairmill.catalog.lake.location import locate
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.tasks.run.place.resources import torch_build

GB = 10**9
WORKER_GB = 2.0  # a worker process that has loaded the models of the demo or of folder
LOW_GB, LEAST_GB = 5.0, 0.5
CGROUP = Path("/sys/fs/cgroup")
NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE


def memory(patient: Patient) -> Iterator[Finding]:
    """Yield a finding on whether the available memory suffices for one worker per CPU, WORKER_GB each."""
    free, workers = available(CGROUP) / GB, len(os.sched_getaffinity(0))
    text = f"{free:.1f} GB available for {workers} workers, one per CPU"
    if free >= WORKER_GB * workers:
        yield Finding("ok", text)
    else:
        fits = max(1, int(free / WORKER_GB))
        trouble = f"{text}; each holds some {WORKER_GB:.0f} GB with its models"
        yield Finding("warn", trouble, f"close other programs, or run with --workers {fits}")


def available(cgroup: Path) -> int:
    """Return the available memory in bytes, within the limit of the control group at ``cgroup`` (a container)."""
    free = psutil.virtual_memory().available
    try:
        limit = (cgroup / "memory.max").read_text().strip()
        used = int((cgroup / "memory.current").read_text())
    except (OSError, ValueError):
        return free
    return min(free, max(0, int(limit) - used)) if limit.isdigit() else free


def disk(patient: Patient) -> Iterator[Finding]:
    """Yield a finding for each disk that a run writes to: of the lake, temporary files and downloaded models."""
    location = locate(patient.lake)
    yield from disks({"the lake": Path(location.metadata).parent if location.on_s3 else Path(location.data_path)})


def disks(places: dict[str, Path]) -> Iterator[Finding]:
    """Yield a finding for each disk that holds ``places`` (folders by name), temporary files or downloaded models."""
    from huggingface_hub.constants import HF_HUB_CACHE

    models = Path(HF_HUB_CACHE).expanduser()
    places = {**places, "temporary files": Path(tempfile.gettempdir()), "the cache of models": models}
    on_disk: dict[int, list[tuple[str, Path]]] = {}
    for name, place in places.items():
        folder = existing(place)
        on_disk.setdefault(folder.stat().st_dev, []).append((name, folder))
    yield from map(_judge_disk, on_disk.values())


def _judge_disk(found: list[tuple[str, Path]]) -> Finding:
    """Return the finding for one disk, from the names and existing folders of its places."""
    names = ", ".join(name for name, _ in found)
    if closed := [str(folder) for _, folder in found if not os.access(folder, os.W_OK)]:
        return Finding("fail", f"{names}: {closed[0]} cannot be written", "change its owner or rights, or name another")
    usage = shutil.disk_usage(found[0][1])
    text = f"{names}: {usage.free / GB:,.1f} GB free of {usage.total / GB:,.0f} GB"
    if usage.free >= LOW_GB * GB:
        return Finding("ok", text)
    state = "warn" if usage.free >= LEAST_GB * GB else "fail"
    return Finding(state, text, "free some space, or name another disk by --lake, TMPDIR or HF_HOME")


def existing(place: Path) -> Path:
    """Return the nearest existing folder: ``place`` or one above it."""
    return next(folder for folder in (place, *place.absolute().parents) if folder.is_dir())


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
