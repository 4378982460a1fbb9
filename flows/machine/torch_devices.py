"""Check whether models can use a GPU, and why not."""

import os
import runpy
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from pairmill.flows.machine.cuda_driver import Driver, ask_driver
from pairmill.flows.machine.finding import Finding, Patient


def devices(patient: Patient) -> Iterator[Finding]:
    """Compare the GPUs of the driver with the CUDA version that torch was built for, without importing torch."""
    yield judge(ask_driver(), *_torch_build(), os.environ.get("CUDA_VISIBLE_DEVICES"), len(os.sched_getaffinity(0)))


def judge(driver: Driver, torch: str, built_for: str, visible: str | None, cpus: int) -> Finding:
    """Return whether torch can use the GPUs.

    Args:
        driver: What the driver says.
        torch: Version of torch.
        built_for: CUDA version that torch was built for, '' for a build without CUDA.
        visible: CUDA_VISIBLE_DEVICES, None if it is not set.
        cpus: CPUs that this process may use.
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


def _torch_build() -> tuple[str, str]:
    """Return torch's version, and the CUDA version that it was built for ('' without CUDA), as its package says."""
    spec = find_spec("torch")
    if spec is None or spec.origin is None:
        return "", ""
    build = runpy.run_path(str(Path(spec.origin).with_name("version.py")))
    return build["__version__"], build["cuda"] or ""
