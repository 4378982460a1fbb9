"""Examine one machine of a cluster, from within it: versions, devices, space, sources, the lake's data, models."""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import distributions, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING

from pairmill.catalog.terms.backend import GROUP as BACKENDS
from pairmill.catalog.terms.declared import GROUP as SCORERS
from pairmill.flows.machine.finding import Finding, Patient
from pairmill.flows.user_error import user_message
from pairmill.ops.read.declared_formats import GROUP as FORMATS

if TYPE_CHECKING:
    from pairmill.catalog.recipe.recipe import Recipe

SEEN = 3  # files of a shared folder that every machine must see


@dataclass(frozen=True)
class Expected:
    """What the machine that starts a run has, and what the run reads: each machine is compared with it.

    Attributes:
        python: Major and minor version of Python.
        pairmill: Version of Pairmill.
        packages: Digest of the versions of all installed packages.
        extensions: Packages that declare scores, backends or formats, as NAME==VERSION.
        data_path: Folder or s3:// prefix of the lake's data, '' if no lake is named.
        files: Some files below ``data_path``, relative; empty on S3 and for a new lake.
        sources: Places of the sources, without formats.
        recipe: The recipe, whose models are looked for.
    """

    python: str
    pairmill: str
    packages: str
    extensions: tuple[str, ...]
    data_path: str
    files: tuple[str, ...]
    sources: tuple[str, ...]
    recipe: Recipe | None


def expected(data_path: str, sources: tuple[str, ...], recipe: Recipe | None) -> Expected:
    """Return what this machine has."""
    folder = Path(data_path)
    files = () if "://" in data_path or not folder.is_dir() else tuple(_some_files(folder))
    return Expected(_python(), version("pairmill"), packages_digest(), extensions(), data_path, files, sources, recipe)


def packages_digest() -> str:
    """Hash the names and versions of all installed packages to 12 hex digits."""
    found = sorted({f"{each.name.lower()}=={each.version}" for each in distributions()})
    return hashlib.sha256("\n".join(found).encode()).hexdigest()[:12]


def extensions() -> tuple[str, ...]:
    """Return the installed packages that extend Pairmill by entry points, as NAME==VERSION, sorted."""
    found = [point.dist for group in (SCORERS, BACKENDS, FORMATS) for point in entry_points(group=group) if point.dist]
    return tuple(sorted({f"{each.name}=={each.version}" for each in found}))


def node_state(wanted: Expected) -> list[tuple[str, Finding]]:
    """Examine this machine; return (check, finding). An error of one check is a finding, and the others still run."""
    found: list[tuple[str, Finding]] = []
    for name, examine in _CHECKS:
        try:
            found += [(name, finding) for finding in examine(wanted)]
        except Exception as error:
            found.append((name, Finding("fail", user_message(error) or f"{type(error).__name__}: {error}")))
    return found


def _versions(wanted: Expected) -> Iterator[Finding]:
    """Compare Python, Pairmill and the other packages with those of the machine that starts runs."""
    if _python() != wanted.python:
        remedy = f"install Python {wanted.python} there: Ray sends functions between equal versions only"
        yield Finding("fail", f"Python {_python()}, not {wanted.python}", remedy)
    if version("pairmill") != wanted.pairmill:
        yield Finding(
            "fail", f"Pairmill {version('pairmill')}, not {wanted.pairmill}", f"pip install pairmill=={wanted.pairmill}"
        )
    elif lacking := sorted(set(wanted.extensions) - set(extensions())):
        yield Finding("fail", f"no {', '.join(lacking)}", f"pip install {' '.join(lacking)}")
    elif packages_digest() != wanted.packages:
        remedy = "install both from infra/requirements.lock: other versions of a model's library may score otherwise"
        yield Finding("warn", f"Pairmill {wanted.pairmill}, but other versions of its packages", remedy)
    else:
        yield Finding("ok", f"Pairmill {wanted.pairmill}, Python {wanted.python}, the same packages")


def _devices(wanted: Expected) -> Iterator[Finding]:
    from pairmill.flows.machine.torch_devices import devices

    yield from devices(Patient(""))


def _space(wanted: Expected) -> Iterator[Finding]:
    """Check the disks of temporary files and of models."""
    from huggingface_hub.constants import HF_HUB_CACHE

    from pairmill.flows.machine.space import disks

    places = {"temporary files": Path(tempfile.gettempdir()), "the cache of models": Path(HF_HUB_CACHE).expanduser()}
    yield from disks(places)


def _sources(wanted: Expected) -> Iterator[Finding]:
    """Check that each source is there. A source on the web is asked by the machine that lists it."""
    for place in wanted.sources:
        if place.startswith("s3://"):
            yield _on_s3(place, "source")
        elif "://" not in place:
            yield _shared(place, os.path.exists(place), "source")


def _lake_data(wanted: Expected) -> Iterator[Finding]:
    """Check that the lake's data can be read here, and that a shared folder is the same folder."""
    if wanted.data_path.startswith("s3://"):
        yield _on_s3(wanted.data_path, "the lake's data")
    elif wanted.data_path:
        folder = Path(wanted.data_path)
        sees = all((folder / file).is_file() for file in wanted.files) and (folder.is_dir() or not wanted.files)
        yield _shared(wanted.data_path, sees and os.access(_nearest(folder), os.W_OK), "the lake's data")


def _models(wanted: Expected) -> Iterator[Finding]:
    from pairmill.flows.machine.recipe_models import recipe_models

    if wanted.recipe is not None:
        yield from recipe_models(Patient("", wanted.recipe))


_CHECKS: tuple[tuple[str, Callable[[Expected], Iterator[Finding]]], ...] = (
    ("versions", _versions), ("devices", _devices), ("disk", _space), ("sources", _sources), ("lake", _lake_data),
    ("models", _models),
)  # fmt: skip


def _on_s3(place: str, what: str) -> Finding:
    """Ask for one key below an S3 prefix, with this machine's keys."""
    from pairmill.ops.read.places.s3_requests import filesystem

    bucket, _, prefix = place.removeprefix("s3://").partition("/")
    try:
        filesystem().call_s3("list_objects_v2", Bucket=bucket, Prefix=prefix, MaxKeys=1)
    except Exception as error:  # botocore's and s3fs's own types, and those of the network
        trouble = f"{what} {place}: {str(error).splitlines()[0][:200] or type(error).__name__}"
        return Finding("fail", trouble, "set AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY there")
    return Finding("ok", f"{what} {place}: can be read")


def _shared(place: str, is_there: bool, what: str) -> Finding:
    """Return the finding for a folder that all machines must share."""
    if is_there:
        return Finding("ok", f"{what} {place}: is there")
    remedy = "put it on S3, or on a file system that every machine mounts at this path"
    return Finding("fail", f"{what} {place}: is not on this machine", remedy)


def _some_files(folder: Path) -> Iterator[str]:
    """Return up to SEEN files below a folder, relative to it."""
    files = (file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file())
    for _, file in zip(range(SEEN), files, strict=False):
        yield file


def _nearest(folder: Path) -> Path:
    """Return the nearest folder that exists: this one or one above it."""
    return next(each for each in (folder, *folder.parents) if each.is_dir())


def _python() -> str:
    return ".".join(map(str, sys.version_info[:2]))
