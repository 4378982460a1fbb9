"""Check the free memory, and the free disk space where a run writes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil

from pairmill.catalog.lake.location import locate
from pairmill.flows.machine.finding import Finding, Patient

GB = 10**9
WORKER_GB = 2.0  # a worker process that has loaded the models of the demo or of folder
LOW_GB, LEAST_GB = 5.0, 0.5
CGROUP = Path("/sys/fs/cgroup")


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
