"""Find this machine's GPUs without initialising CUDA, which breaks forks, and divide them among workers."""

import os
import shutil
import subprocess
from functools import cache
from importlib.util import find_spec
from itertools import takewhile
from pathlib import Path

# Where a kernel shows the GPUs: NVIDIA's device files, the passage to Windows' driver (WSL2), AMD's nodes.
NVIDIA, WSL, AMD = Path("/dev"), Path("/dev/dxg"), Path("/sys/class/kfd/kfd/topology/nodes")
WSL_TOOLS = "/usr/lib/wsl/lib"


def devices() -> tuple[str, ...]:
    """List this machine's GPUs as CUDA_VISIBLE_DEVICES names them.

    As in CUDA, an invalid name such as -1 ends the list.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        names = (name.strip() for name in visible.split(","))
        return tuple(takewhile(lambda name: name and not name.startswith("-"), names))
    return tuple(str(n) for n in range(_n_cards()))


def devices_by_worker(gpus: float) -> tuple[str, ...]:
    """List the CUDA_VISIBLE_DEVICES of each worker that takes ``gpus`` GPUs.

    '' hides all GPUs from CPU workers, also those that this machine has but `devices` does not find: otherwise every
    CPU worker would load its model onto the first card.
    """
    if not gpus:
        return ("",)
    found, n = devices(), max(1, int(gpus))
    return tuple(",".join(found[start : start + n]) for start in range(0, len(found) - n + 1, n))


def _n_cards() -> int:
    """Count the GPUs that torch's build may use, by what the kernel shows of them."""
    if found := len(list(NVIDIA.glob("nvidia[0-9]*"))):
        return found
    if WSL.exists():  # also there for other makers' cards
        return _n_listed()
    return _n_compute_nodes() if _is_for_rocm() else 0


@cache
def _n_listed() -> int:
    """Count the GPUs that nvidia-smi lists; 0 without it."""
    tool = shutil.which("nvidia-smi", path=os.pathsep.join((os.environ.get("PATH", ""), WSL_TOOLS)))
    if tool is None:
        return 0
    try:
        said = subprocess.run([tool, "-L"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return 0
    return sum(line.startswith("GPU ") for line in said.stdout.splitlines())


def _n_compute_nodes() -> int:
    """Count AMD's nodes with compute units; a CPU is a node without any."""
    files = (node / "properties" for node in AMD.glob("[0-9]*"))
    words = (line.split() for file in files if file.is_file() for line in file.read_text().splitlines())
    return sum(word[0] == "simd_count" and word[1] != "0" for word in words if len(word) == 2)


@cache
def _is_for_rocm() -> bool:
    """Return whether the installed torch is built for AMD's cards, from its version file: importing it takes 3 s."""
    found = find_spec("torch")
    file = Path(found.origin).with_name("version.py") if found and found.origin else None
    if file is None or not file.is_file():
        return False
    set_to = [line.partition("=")[2].strip() for line in file.read_text().splitlines() if line.startswith("hip")]
    return any(value not in ("", "None") for value in set_to)
